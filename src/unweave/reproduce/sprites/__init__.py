"""``unweave reproduce sprites``: content alone, at any strength of augmentation (paper, section 5.2)."""

from unweave.reproduce.sprites.run import QUICK, QUICK_ROWS, SpritesConfig, run_sprites, tune_sprites

__all__ = ["QUICK", "QUICK_ROWS", "SpritesConfig", "run_sprites", "tune_sprites"]
