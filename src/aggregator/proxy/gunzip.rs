//! Streaming gunzip of responses for which the proxy, not the client, requested gzip. Go's transport does the
//! same.

use crate::request::body::BoxError;
use bytes::{Buf as _, Bytes};
use flate2::write::MultiGzDecoder;
use http::HeaderMap;
use http_body::{Body, Frame};
use std::io::{self, Write as _};
use std::pin::Pin;
use std::task::{Context, Poll};

/// Most compressed bytes per step. The decoder itself ends a step after 32 KiB of output, but compressed bytes can also
/// be long work without output: each dozen of them can be a block with a table of its own.
const PIECE: usize = 1 << 10;

/// Size from which output is sent.
const FRAME: usize = 16 << 10;

/// Work after which the task yields, in bytes of output; some 100 µs.
const TURN: usize = 64 << 10;

/// Work of a step beside its bytes: it can begin a member of the gzip stream, which allocates a decoder.
const STEP: usize = 2 << 10;

/// Work of a compressed byte, in bytes of output.
const WEIGHT: usize = 8;

pub(crate) struct Gunzip<B> {
    inner: B,
    /// Go reads all members of a gzip stream, too: several in a row are one text.
    decoder: MultiGzDecoder<Vec<u8>>,
    /// Compressed bytes received but not yet decompressed.
    packed: Bytes,
    /// Whether there were compressed bytes at all.
    begun: bool,
    trailers: Option<HeaderMap>,
    /// Work left until the task yields.
    turn: usize,
    done: bool,
}

impl<B> Gunzip<B> {
    /// Decompresses `inner`.
    pub(crate) fn new(inner: B) -> Self {
        Self {
            inner,
            decoder: MultiGzDecoder::new(Vec::new()),
            packed: Bytes::new(),
            begun: false,
            trailers: None,
            turn: TURN,
            done: false,
        }
    }

    /// Output that is to be sent now.
    fn unpacked(&mut self) -> Option<Bytes> {
        let length = self.decoder.get_ref().len();
        // Collected otherwise: a frame for each piece of input would cost more than its decompression.
        let is_due = length >= FRAME || self.packed.is_empty() || self.turn == 0;
        (length > 0 && is_due).then(|| std::mem::take(self.decoder.get_mut()).into())
    }

    /// Decompresses at most [`PIECE`] bytes of the input.
    fn step(&mut self) -> io::Result<()> {
        let before = self.decoder.get_ref().len();
        // Not `write_all`, which goes on until the piece has been expanded, up to a thousandfold.
        let taken = self.decoder.write(&self.packed[..PIECE.min(self.packed.len())])?;
        // A streaming backend's partial output must not wait in the decoder.
        self.decoder.flush()?;
        let work = STEP + taken * WEIGHT + self.decoder.get_ref().len() - before;
        self.turn = self.turn.saturating_sub(work);
        self.packed.advance(taken);
        Ok(())
    }

    /// Ends the body after an error.
    fn fail(&mut self, e: BoxError) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.done = true;
        self.packed.clear();
        self.decoder.get_mut().clear();
        Poll::Ready(Some(Err(e)))
    }
}

impl<B> Body for Gunzip<B>
where
    B: Body<Data = Bytes, Error = BoxError> + Unpin,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        loop {
            if let Some(data) = this.unpacked() {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            if this.done {
                return Poll::Ready(this.trailers.take().map(|t| Ok(Frame::trailers(t))));
            }
            if !this.packed.is_empty() {
                if this.turn == 0 {
                    this.turn = TURN;
                    // Polled again after the other tasks of this reactor.
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                if let Err(e) = this.step() {
                    return this.fail(e.into());
                }
                continue;
            }
            match Pin::new(&mut this.inner).poll_frame(cx) {
                Poll::Pending => {
                    this.turn = TURN;
                    return Poll::Pending;
                }
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(packed) => {
                        this.begun |= !packed.is_empty();
                        this.packed = packed;
                        continue;
                    }
                    Err(frame) => this.trailers = frame.into_trailers().ok(),
                },
                Poll::Ready(Some(Err(e))) => return this.fail(e),
                Poll::Ready(None) => {}
            }
            // Reached at the end of the data or at trailers, before which the rest of the text has to be sent.
            this.done = true;
            // Fails for a stream that was cut short, which the client must not take for complete. Go accepts one that
            // is empty.
            if this.begun
                && let Err(e) = this.decoder.try_finish()
            {
                this.trailers = None;
                return this.fail(e.into());
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.done && self.trailers.is_none() && self.decoder.get_ref().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{BodyExt as _, StreamBody};

    #[tokio::test]
    async fn chunk_boundaries_do_not_affect_the_output() {
        let text = "torana ".repeat(1000);
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(text.as_bytes()).unwrap();
        let mut packed = packer.finish().unwrap();
        // A stream of two members.
        packed.extend_from_within(..);
        let text = text.repeat(2);
        for size in [1, 7, packed.len()] {
            let frames: Vec<Result<Frame<Bytes>, BoxError>> = packed
                .chunks(size)
                .map(|c| Ok(Frame::data(Bytes::copy_from_slice(c))))
                .collect();
            let body = Gunzip::new(StreamBody::new(futures_util::stream::iter(frames)));
            assert_eq!(body.collect().await.unwrap().to_bytes(), text.as_bytes());
        }
    }

    /// The pieces that one poll after the other returns, until the end.
    fn polled(packed: Vec<u8>) -> Vec<Poll<usize>> {
        let frame = Ok::<_, BoxError>(Frame::data(Bytes::from(packed)));
        let mut body = Gunzip::new(StreamBody::new(futures_util::stream::iter([frame])));
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut all = Vec::new();
        loop {
            match Pin::new(&mut body).poll_frame(&mut cx) {
                Poll::Ready(None) => return all,
                Poll::Ready(Some(frame)) => {
                    let data = frame.expect("the stream is intact").into_data();
                    all.push(Poll::Ready(data.expect("there are no trailers").len()));
                }
                Poll::Pending => all.push(Poll::Pending),
            }
        }
    }

    #[test]
    fn a_gzip_bomb_is_decompressed_in_turns() {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        packer.write_all(&vec![0; 8 << 20]).unwrap();
        let polls = polled(packer.finish().unwrap());
        let sizes = |turn: &[Poll<usize>]| -> usize {
            let size = |p: &Poll<usize>| if let Poll::Ready(n) = p { *n } else { 0 };
            turn.iter().map(size).sum()
        };
        assert_eq!(sizes(&polls), 8 << 20);
        let largest = polls.split(Poll::is_pending).map(sizes).max();
        assert!(largest <= Some(2 * TURN), "{largest:?} bytes in one turn");
    }

    #[test]
    fn a_flood_of_empty_members_is_read_in_turns() {
        let empty = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        let polls = polled(empty.finish().unwrap().repeat(1000));
        assert!(polls.len() > 1000 * STEP / TURN && polls.iter().all(Poll::is_pending));
    }

    #[tokio::test]
    async fn an_empty_body_is_an_empty_text() {
        let none: [Result<Frame<Bytes>, BoxError>; 0] = [];
        let body = Gunzip::new(StreamBody::new(futures_util::stream::iter(none)));
        assert!(body.collect().await.unwrap().to_bytes().is_empty());
    }

    #[tokio::test]
    async fn trailers_follow_the_body_and_truncation_is_an_error() {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(b"text").unwrap();
        let packed = packer.finish().unwrap();
        for (length, is_whole) in [(packed.len(), true), (packed.len() - 1, false)] {
            let frames = [
                Ok::<_, BoxError>(Frame::data(Bytes::copy_from_slice(&packed[..length]))),
                Ok(Frame::trailers(HeaderMap::new())),
            ];
            let body = Gunzip::new(StreamBody::new(futures_util::stream::iter(frames)));
            let all = body.collect().await;
            assert_eq!(all.is_ok_and(|all| all.trailers().is_some()), is_whole, "{length}");
        }
    }
}
