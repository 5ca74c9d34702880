"""Conclusions under both bounds and over the draws, and the measurement that settles each."""

from kernelfit.documents.questions import Question
from kernelfit.flips.defaults import default_questions
from kernelfit.flips.find import find_flips, unanswered
from kernelfit.flips.flag import Flag, flip_rows

__all__ = ["Flag", "Question", "default_questions", "find_flips", "flip_rows", "unanswered"]
