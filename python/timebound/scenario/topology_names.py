"""From labels of other people's files to names of nodes: letters, digits, `_`, `.`, `-`."""

from __future__ import annotations

import re
import unicodedata

_TABLE = """
ß=ss æ=ae œ=oe ø=o đ=d ð=d ł=l ħ=h ı=i þ=th ŋ=ng ə=e
а=a б=b в=v г=g д=d е=e ё=e ж=zh з=z и=i й=y к=k л=l м=m н=n о=o п=p р=r с=s т=t у=u ф=f х=kh ц=ts ч=ch ш=sh щ=shch ъ= ы=y ь= э=e ю=yu я=ya
є=ye і=i ї=yi ґ=g ў=u ђ=dj ј=j љ=lj њ=nj ћ=c џ=dz
α=a β=v γ=g δ=d ε=e ζ=z η=i θ=th ι=i κ=k λ=l μ=m ν=n ξ=x ο=o π=p ρ=r σ=s ς=s τ=t υ=y φ=f χ=ch ψ=ps ω=o
"""
_LETTERS = {letter: latin for letter, _, latin in (pair.partition("=") for pair in _TABLE.split())}
"""Letters that no accent can be taken from: Latin ones, Cyrillic (after the usual English transcription) and Greek ones."""


def clean_name(label: str) -> str:
    """A label as the name of a node; empty where nothing of it is left."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", _latin(label)).strip("-.")[:48].strip("-.")


def name_of(key: str, label: object) -> str:
    """The name of a node with the id `key` and perhaps a label: the label, else the id; a number gets an `n` before it, and so does the id
    where the label is in letters that are unknown here."""
    text = str(label) if label is not None else ""
    for each in (text, key):
        found = clean_name(each)
        if found and _is_readable(each) and (each is text or found[:1].isalpha()):
            return found
    return clean_name(f"n{key}") or "n"


def _latin(label: str) -> str:
    """Each letter by the table, or without its accents."""
    found = []
    for letter in unicodedata.normalize("NFC", label):
        # A letter of the table may carry an accent (й is и with one, and in the table itself).
        base = letter if letter.lower() in _LETTERS else unicodedata.normalize("NFKD", letter)
        for part in base:
            known = _LETTERS.get(part.lower())
            found.append(part if known is None else known.capitalize() if part.isupper() else known)
    return "".join(found).encode("ascii", "ignore").decode()


def _is_readable(label: str) -> bool:
    """Are most of its letters known here? (`Tokyo (東京)` is, `n` for 長野 is not.)"""
    letters = [letter for letter in label if letter.isalpha()]
    return 2 * sum(bool(_latin(letter)) or letter.lower() in _LETTERS for letter in letters) >= len(letters)
