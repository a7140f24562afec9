"""``unweave reproduce sprites``: content alone, at any strength of augmentation (paper, section 5.2)."""

from unweave.reproduce.sprites.run import QUICK, SpritesConfig, run_sprites, tune_sprites

__all__ = ["QUICK", "SpritesConfig", "run_sprites", "tune_sprites"]
