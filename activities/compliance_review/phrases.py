"""Find phrases in a text as its reader sees them, in whatever form a mail program puts them."""

import re
import unicodedata
from collections.abc import Sequence

# Thai, Lao, Tibetan, Burmese, Korean, Khmer, Japanese and Chinese.
_UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
    "\uf900-\ufaff"
)
_UNSPACED_SIGN = re.compile(f"[{_UNSPACED}]")
_BETWEEN_UNSPACED = re.compile(f"(?<=[{_UNSPACED}])(?=[{_UNSPACED}])")
_SPACED_SIGN = rf"[^\W{_UNSPACED}]"
_TYPED = str.maketrans(
    {**dict.fromkeys("‘’‚‛ʼ′", "'"), **dict.fromkeys("“”„‟«»", '"'), **dict.fromkeys("‐‑‒–—―−", "-")}
)


def phrases_in(text: str, phrases: Sequence[str]) -> tuple[int, ...]:
    r"""Return which of some phrases a text has, by number from 1 on.

    They are found as whole words, in any case and however they are broken into lines. Quotation marks and dashes of
    any form are the same, for mail programs put others than were typed. In a script without blanks between words, such
    as Japanese, or with endings hung on to them, such as Korean, a phrase is found wherever its signs are.

    Example:
        >>> phrases_in("We guarantee a\n full  REFUND; you can’t lose", ["fund", "full refund", "can't lose"])
        (2, 3)
        >>> phrases_in("必ず全額返金します", ["全額返金"])
        (1,)
    """
    plain = _plain(text)
    return tuple(number for number, phrase in enumerate(phrases, 1) if _is_in(plain, _plain(phrase).split()))


def without_invisible(text: str) -> str:
    """Return a text with compatible characters in their plain form, and without invisible ones.

    Example:
        >>> without_invisible("ﬁnal re\u00adfund")
        'final refund'
    """
    text = unicodedata.normalize("NFKC", text)
    return "".join(character for character in text if unicodedata.category(character) != "Cf")


def _is_in(plain: str, wanted: Sequence[str]) -> bool:
    if not wanted:
        return False
    words = r"\s+".join(_BETWEEN_UNSPACED.sub(r"\\s*", re.escape(word)) for word in wanted)
    before = "" if _UNSPACED_SIGN.match(wanted[0]) else rf"(?<!{_SPACED_SIGN})"
    after = "" if _UNSPACED_SIGN.match(wanted[-1][-1]) else rf"(?!{_SPACED_SIGN})"
    return re.search(before + words + after, plain) is not None


def _plain(text: str) -> str:
    """Return a text in the form in which phrases are compared."""
    return unicodedata.normalize("NFKC", without_invisible(text).translate(_TYPED).casefold())
