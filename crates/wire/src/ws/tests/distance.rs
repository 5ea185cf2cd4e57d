//! Measures the longest distance in a DEFLATE stream (RFC 1951). The inflater of zlib-rs accepts more than
//! its window, so it can't detect a violation. This decoder is slow, trusts its input, and keeps only the
//! data that it needs to proceed.

struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    fn take(&mut self, count: usize) -> usize {
        let value = (0..count).map(|bit| (self.bit(self.at + bit)) << bit).sum();
        self.at += count;
        value
    }

    fn bit(&self, at: usize) -> usize {
        usize::from(self.bytes[at / 8] >> (at % 8) & 1)
    }

    fn symbol(&mut self, code: &Code) -> usize {
        let (mut value, mut first, mut index) = (0, 0, 0);
        for count in &code.counts[1..] {
            value |= self.take(1);
            if value < first + count {
                return code.symbols[index + value - first];
            }
            index += count;
            first = (first + count) << 1;
            value <<= 1;
        }
        panic!("no such code");
    }
}

/// A canonical Huffman code: the number of codes of each length, and the symbols in the order of their codes.
struct Code {
    counts: [usize; 16],
    symbols: Vec<usize>,
}

impl Code {
    fn new(lengths: &[usize]) -> Code {
        let mut counts = [0; 16];
        lengths.iter().for_each(|&length| counts[length] += usize::from(length > 0));
        let mut symbols: Vec<usize> = (0..lengths.len()).filter(|&symbol| lengths[symbol] > 0).collect();
        symbols.sort_by_key(|&symbol| lengths[symbol]);
        Code { counts, symbols }
    }
}

const LENGTH_EXTRA: [usize; 29] =
    [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0];

fn codes(bits: &mut Bits<'_>) -> (Code, Code) {
    const ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
    let (literals, distances, lengths) = (bits.take(5) + 257, bits.take(5) + 1, bits.take(4) + 4);
    let mut code_lengths = [0; 19];
    ORDER[..lengths].iter().for_each(|&symbol| code_lengths[symbol] = bits.take(3));
    let code = Code::new(&code_lengths);
    let mut lengths = Vec::new();
    while lengths.len() < literals + distances {
        let (value, times) = match bits.symbol(&code) {
            16 => (lengths[lengths.len() - 1], 3 + bits.take(2)),
            17 => (0, 3 + bits.take(3)),
            18 => (0, 11 + bits.take(7)),
            length => (length, 1),
        };
        lengths.extend(std::iter::repeat_n(value, times));
    }
    (Code::new(&lengths[..literals]), Code::new(&lengths[literals..]))
}

/// Returns the longest distance in the blocks of a message that [`Deflater`](super::Deflater) made.
pub(super) fn longest(deflated: &[u8]) -> usize {
    let bytes = [deflated, &[0, 0, 0xff, 0xff]].concat();
    let mut bits = Bits { bytes: &bytes, at: 0 };
    let mut longest = 0;
    while bytes.len() * 8 - bits.at >= 10 {
        assert_eq!(bits.take(1), 0, "we make no final blocks");
        let (literals, distances) = match bits.take(2) {
            0 => {
                bits.at = bits.at.next_multiple_of(8);
                let length = bits.take(16);
                assert_eq!(length ^ 0xffff, bits.take(16));
                bits.at += length * 8;
                continue;
            }
            1 => {
                let lengths: Vec<usize> = (0..288usize)
                    .map(|symbol| match symbol {
                        0..144 | 280.. => 8,
                        144..256 => 9,
                        256..280 => 7,
                    })
                    .collect();
                (Code::new(&lengths), Code::new(&[5; 30]))
            }
            _ => codes(&mut bits),
        };
        loop {
            match bits.symbol(&literals) {
                256 => break,
                symbol @ 257.. => {
                    bits.take(LENGTH_EXTRA[symbol - 257]);
                    let symbol = bits.symbol(&distances);
                    let extra = (symbol / 2).saturating_sub(1);
                    let base = if symbol < 4 { symbol + 1 } else { ((2 + symbol % 2) << extra) + 1 };
                    longest = longest.max(base + bits.take(extra));
                }
                _ => {}
            }
        }
    }
    longest
}
