"""Keys of videos and audio clips under a recipe."""

from mmhash.media.clips import AudioClip, VideoClip, audio, video
from mmhash.media.recipe import AudioIndex, AudioRecipe, VideoIndex, VideoRecipe, recipe_key

__all__ = [
    "AudioClip",
    "AudioIndex",
    "AudioRecipe",
    "VideoClip",
    "VideoIndex",
    "VideoRecipe",
    "audio",
    "recipe_key",
    "video",
]
