"""``unweave reproduce sprite-spaces``: content and five style spaces of ColorDSprites at once; not in the paper."""

from unweave.reproduce.sprite_spaces.run import QUICK, SpriteSpacesConfig, run_sprite_spaces

__all__ = ["QUICK", "SpriteSpacesConfig", "run_sprite_spaces"]
