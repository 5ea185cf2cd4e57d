/** Keys of docs/protocol.md, unless the option `keys` says otherwise. */
export const ASCII_KEYS = /^(?!(.*\/)?\.{0,2}(\/|$))[\w.~@:=+,/-]{1,256}$/;

/**
 * Keys of a server with `keys = "utf8"` (docs/feeds.md), but for their length in bytes. The first part refuses empty segments, and segments
 * that a server may take for a directory; the second one escapes.
 */
export const UTF8_KEYS = /^(?!(.*\/)?(\s*\.{1,2}\s*([;?#][^/]*)?)?(\/|$))(?!.*%[\da-f]{2})[^\\\p{Cc}\p{Bidi_C}\u2028\u2029]{1,256}$/iu;
