//! Streaming gunzip of responses for which the proxy, not the client, requested gzip. Go's transport does the
//! same.

use crate::request::body::BoxError;
use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use http_body::{Body, Frame};
use std::io::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Compressed bytes processed per step. Gzip expands up to a thousandfold, so this bounds
/// the output buffer to about 4 MiB.
const PIECE: usize = 4 << 10;

/// A decompressed body.
pub(crate) struct Gunzip<B> {
    inner: B,
    /// Go reads all members of a gzip stream, too: several in a row are one text.
    decoder: MultiGzDecoder<Vec<u8>>,
    /// Compressed bytes received but not yet decompressed.
    packed: Bytes,
    done: bool,
}

impl<B> Gunzip<B> {
    /// Decompresses `inner`.
    pub(crate) fn new(inner: B) -> Self {
        Self {
            inner,
            decoder: MultiGzDecoder::new(Vec::new()),
            packed: Bytes::new(),
            done: false,
        }
    }

    fn unpacked(&mut self) -> Bytes {
        std::mem::take(self.decoder.get_mut()).into()
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
        while !this.done {
            if !this.packed.is_empty() {
                let piece = this.packed.split_to(PIECE.min(this.packed.len()));
                // Flush per step: a streaming backend's partial output must not wait in the decoder.
                let written = this.decoder.write_all(&piece).and_then(|()| this.decoder.flush());
                if let Err(e) = written {
                    this.done = true;
                    return Poll::Ready(Some(Err(e.into())));
                }
                let data = this.unpacked();
                if !data.is_empty() {
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                continue;
            }
            match ready!(Pin::new(&mut this.inner).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(packed) => this.packed = packed,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                Some(Err(e)) => {
                    this.done = true;
                    return Poll::Ready(Some(Err(e)));
                }
                None => {
                    this.done = true;
                    // Fails for a stream that was cut short, which the client must not take for complete.
                    if let Err(e) = this.decoder.try_finish() {
                        return Poll::Ready(Some(Err(e.into())));
                    }
                    let data = this.unpacked();
                    if !data.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(data))));
                    }
                }
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.done
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

    #[tokio::test]
    async fn a_gzip_bomb_is_decompressed_in_pieces() {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(&vec![0; 8 << 20]).unwrap();
        let frame = Ok::<_, BoxError>(Frame::data(Bytes::from(packer.finish().unwrap())));
        let mut body = Gunzip::new(StreamBody::new(futures_util::stream::iter([frame])));
        let (mut largest, mut all) = (0, 0);
        while let Some(frame) = body.frame().await {
            let n = frame.unwrap().into_data().unwrap().len();
            largest = largest.max(n);
            all += n;
        }
        assert!(all == 8 << 20 && largest * 2 < all, "{largest} of {all} at once");
    }
}
