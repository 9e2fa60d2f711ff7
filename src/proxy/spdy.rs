//! SPDY/3.1 frames as kubelets speak them, from the client's side and without I/O: [`Encoder`] makes frames,
//! [`Decoder`] takes them apart.
//!
//! Kubelets (`github.com/moby/spdystream`) have no flow control: TCP's takes its place. Header blocks of the
//! other side are skipped, because replies to streams carry nothing. Ours are stored instead of deflated, in
//! a zlib stream that needs no dictionary, which every inflater reads.

use bytes::{Buf as _, Bytes, BytesMut};

/// Maximum bytes of a data frame that are decoded at once; larger frames come in pieces.
pub const PIECE: usize = 32 << 10;

/// Maximum bytes of a control frame. A kubelet's are a few dozen bytes long.
const MAX_CONTROL: usize = 64 << 10;

const HEAD: usize = 8;
const VERSION: u16 = 3;
const FIN: u8 = 1;
const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const HEADERS: u16 = 8;

/// The frames of a kubelet that a client has to handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A stream was accepted.
    Accepted(u32),
    /// Data on a stream.
    Data(u32, Bytes),
    /// The kubelet's side of a stream has ended.
    Ended(u32),
    /// A ping, to be sent back if its id is even, or the answer to one of ours.
    Ping(u32),
    /// The kubelet ends the session.
    GoAway,
}

/// The bytes are not SPDY, or a frame is too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid SPDY frame")]
pub struct Malformed;

/// Decodes the frames of one side of a session.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The stream of the data frame whose rest is expected, that rest's length, and whether it ends the
    /// stream.
    data: Option<(u32, usize, bool)>,
    /// The stream that the last frame ended.
    ended: Option<u32>,
}

impl Decoder {
    /// Takes the next frame from the start of `input`; `None` if more bytes are needed.
    ///
    /// # Errors
    /// [`Malformed`], after which nothing can be decoded any more.
    pub fn next(&mut self, input: &mut BytesMut) -> Result<Option<Frame>, Malformed> {
        loop {
            if let Some(stream) = self.ended.take() {
                return Ok(Some(Frame::Ended(stream)));
            }
            if let Some((stream, left, fin)) = self.data {
                let piece = input.split_to(left.min(PIECE).min(input.len())).freeze();
                let left = left - piece.len();
                self.data = (left > 0).then_some((stream, left, fin));
                self.ended = (left == 0 && fin).then_some(stream);
                match (piece.is_empty(), left) {
                    // An empty frame, which is only there to end the stream.
                    (true, 0) => continue,
                    (true, _) => return Ok(None),
                    (false, _) => return Ok(Some(Frame::Data(stream, piece))),
                }
            }
            let Some(head) = input.first_chunk::<HEAD>() else {
                // A head is used only when complete; until then nothing is consumed, so the caller may retry
                // with more bytes.
                return Ok(None);
            };
            let first = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
            let flags = head[4];
            let length = usize::try_from(u32::from_be_bytes([0, head[5], head[6], head[7]])).map_err(|_| Malformed)?;
            // The highest bit tells control frames from data frames.
            if first >> 31 == 0 {
                input.advance(HEAD);
                self.data = Some((first, length, flags & FIN != 0));
                continue;
            }
            let [version, kind] = [(first >> 16) as u16 & 0x7fff, first as u16];
            // Checked before the frame is complete, so that a hostile length cannot make the caller buffer.
            if version != VERSION || length > MAX_CONTROL {
                return Err(Malformed);
            }
            if input.len() < HEAD + length {
                return Ok(None);
            }
            input.advance(HEAD);
            let mut payload = input.split_to(length);
            if !matches!(kind, SYN_REPLY | RST_STREAM | PING | GOAWAY | HEADERS) {
                // Streams that a kubelet opens, settings and windows are of no use to its client.
                continue;
            }
            if kind == GOAWAY {
                return Ok(Some(Frame::GoAway));
            }
            let id = payload.try_get_u32().map_err(|_| Malformed)?;
            let is_last = flags & FIN != 0;
            match kind {
                PING => return Ok(Some(Frame::Ping(id))),
                RST_STREAM => return Ok(Some(Frame::Ended(id))),
                SYN_REPLY => {
                    self.ended = is_last.then_some(id);
                    return Ok(Some(Frame::Accepted(id)));
                }
                _ => self.ended = is_last.then_some(id),
            }
        }
    }
}

/// Makes frames. Header blocks share one zlib stream, so a session has one encoder.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    has_started: bool,
}

impl Encoder {
    /// Opens a stream with one header.
    pub(crate) fn open(&mut self, stream: u32, name: &str, value: &str) -> Bytes {
        let mut block = 1u32.to_be_bytes().to_vec();
        for text in [name, value] {
            let length = u32::try_from(text.len()).expect("headers of ours are short");
            block.extend_from_slice(&length.to_be_bytes());
            block.extend_from_slice(text.as_bytes());
        }
        let mut payload = stream.to_be_bytes().to_vec();
        // No associated stream, the highest priority, no credential slot.
        payload.extend_from_slice(&[0; 6]);
        payload.extend_from_slice(&self.stored(&block));
        control(SYN_STREAM, &payload)
    }

    /// A header block as a stored block of the session's zlib stream (RFC 1950, RFC 1951).
    fn stored(&mut self, block: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(block.len() + 12);
        if !std::mem::replace(&mut self.has_started, true) {
            // The head of zlib's format, once: all blocks of a connection are one stream.
            out.extend_from_slice(&[0x78, 0x01]);
        }
        let length = u16::try_from(block.len()).expect("headers of ours are short");
        out.push(0);
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&(!length).to_le_bytes());
        out.extend_from_slice(block);
        // Go's reader hands out a stored block only when it meets an empty one, which a sync flush writes.
        out.extend_from_slice(&[0, 0, 0, 0xff, 0xff]);
        out
    }
}

/// The head of a data frame.
pub(crate) fn data(stream: u32, length: usize, is_last: bool) -> [u8; HEAD] {
    let length = u32::try_from(length).expect("callers cut data into pieces");
    let mut head = [0; HEAD];
    head[..4].copy_from_slice(&stream.to_be_bytes());
    head[4..].copy_from_slice(&length.to_be_bytes());
    head[4] = if is_last { FIN } else { 0 };
    head
}

/// A ping, or the answer to one.
pub(crate) fn ping(id: u32) -> Bytes {
    control(PING, &id.to_be_bytes())
}

fn control(kind: u16, payload: &[u8]) -> Bytes {
    let length = u32::try_from(payload.len()).expect("control frames are short");
    let mut frame = Vec::with_capacity(HEAD + payload.len());
    frame.extend_from_slice(&(VERSION | 0x8000).to_be_bytes());
    frame.extend_from_slice(&kind.to_be_bytes());
    // The flags are the highest byte, which a length of 24 bits leaves free.
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(payload);
    frame.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Decompress, FlushDecompress};
    use proptest::prelude::*;

    fn all(decoder: &mut Decoder, input: &mut BytesMut) -> Result<Vec<Frame>, Malformed> {
        std::iter::from_fn(|| decoder.next(input).transpose()).collect()
    }

    #[test]
    fn header_blocks_inflate_without_a_dictionary() {
        let (mut encoder, mut inflater) = (Encoder::default(), Decompress::new(true));
        for (stream, value) in [(1u32, "error"), (3, "stdin")] {
            let frame = encoder.open(stream, "streamtype", value);
            assert_eq!(frame[..4], [0x80, 3, 0, 1]);
            assert_eq!(usize::from(frame[7]), frame.len() - HEAD);
            assert_eq!(frame[8..12], stream.to_be_bytes());
            let mut block = Vec::with_capacity(100);
            inflater
                .decompress_vec(&frame[18..], &mut block, FlushDecompress::Sync)
                .unwrap();
            let wanted = [
                &[0, 0, 0, 1, 0, 0, 0, 10],
                &b"streamtype"[..],
                &[0, 0, 0, 5],
                value.as_bytes(),
            ]
            .concat();
            assert_eq!(block, wanted);
            assert!(frame.ends_with(&[0, 0, 0, 0xff, 0xff]), "as after a sync flush");
        }
    }

    #[test]
    fn frames_are_recognised() {
        let mut input = BytesMut::new();
        input.extend_from_slice(&[0x80, 3, 0, 2, 0, 0, 0, 4, 0, 0, 0, 5]);
        input.extend_from_slice(&[0x80, 3, 0, 4, 0, 0, 0, 1, 9]);
        input.extend_from_slice(&data(5, 3, true));
        input.extend_from_slice(b"abc");
        input.extend_from_slice(&ping(2));
        input.extend_from_slice(&[0x80, 3, 0, 3, 0, 0, 0, 8, 0, 0, 0, 7, 0, 0, 0, 1]);
        input.extend_from_slice(&[0x80, 3, 0, 7, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0]);
        let wanted = [
            Frame::Accepted(5),
            Frame::Data(5, "abc".into()),
            Frame::Ended(5),
            Frame::Ping(2),
            Frame::Ended(7),
            Frame::GoAway,
        ];
        assert_eq!(all(&mut Decoder::default(), &mut input).unwrap(), wanted);
    }

    #[test]
    fn large_data_comes_in_pieces_and_large_control_frames_are_refused() {
        let (mut decoder, mut input) = (Decoder::default(), BytesMut::new());
        input.extend_from_slice(&data(1, 2 * PIECE + 1, true));
        input.extend_from_slice(&vec![b'x'; 2 * PIECE + 1]);
        let lengths: Vec<_> = all(&mut decoder, &mut input).unwrap();
        let lengths = lengths.iter().map(|frame| match frame {
            Frame::Data(_, bytes) => bytes.len(),
            _ => 0,
        });
        assert_eq!(lengths.collect::<Vec<_>>(), [PIECE, PIECE, 1, 0]);
        let mut large = BytesMut::from(&[0x80, 3, 0, 8, 0, 0xff, 0xff, 0xff][..]);
        assert_eq!(decoder.next(&mut large), Err(Malformed));
    }

    proptest! {
        #[test]
        fn any_bytes_decode_the_same_in_any_portions(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0usize..200) {
            // Half of the cases start like a control frame.
            let mut bytes = bytes;
            if at % 2 == 0 && bytes.len() > 6 {
                bytes[..7].copy_from_slice(&[0x80, 3, 0, (at % 10) as u8, 0, 0, 0]);
            }
            let joined = |frames: Vec<Frame>| {
                let mut out: Vec<Frame> = Vec::new();
                for frame in frames {
                    match (out.last_mut(), frame) {
                        (Some(Frame::Data(a, before)), Frame::Data(b, more)) if *a == b => {
                            *before = [&before[..], &more[..]].concat().into();
                        }
                        (_, frame) => out.push(frame),
                    }
                }
                out
            };
            let whole = all(&mut Decoder::default(), &mut BytesMut::from(&bytes[..])).map(joined);
            let (first, second) = bytes.split_at(at.min(bytes.len()));
            let (mut decoder, mut input) = (Decoder::default(), BytesMut::from(first));
            let parts = all(&mut decoder, &mut input).and_then(|mut frames| {
                input.extend_from_slice(second);
                frames.extend(all(&mut decoder, &mut input)?);
                Ok(joined(frames))
            });
            prop_assert_eq!(whole, parts);
        }
    }
}
