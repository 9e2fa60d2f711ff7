//! A response body with rewritten links: decompresses, rewrites and compresses again, chunk by chunk.

use super::Page;
use crate::proxy::links::Links;
use crate::request::body::BoxError;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::{DeflateDecoder, DeflateEncoder, GzEncoder, MultiGzDecoder};
use http::{HeaderMap, header};
use http_body::{Body, Frame};
use std::io::{Result, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Bytes of a page that are rewritten per step.
const PIECE: usize = 4 << 10;
/// Compressed bytes decompressed per step: bounds the output per step to about 32 KiB, since gzip expands up to a
/// thousandfold.
const PACKED_PIECE: usize = 32;
/// The fixed cost of such a step: it can begin members of a gzip stream, each of which allocates a decoder.
const PACKED_STEP: usize = 1 << 10;

/// Bytes of a page, before and after it is rewritten, that are worked on before other tasks of the thread get their
/// turn. Compressing that much again takes some 100 µs.
const TURN: usize = 16 << 10;

/// Content encoding of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// Not compressed.
    Identity,
    Gzip,
    /// Raw DEFLATE without the zlib header, as Go's `compress/flate` expects it.
    Deflate,
}

/// A body whose links are rewritten.
pub(crate) struct Rewritten<B> {
    inner: B,
    /// Bytes received but not yet decompressed.
    rest: Bytes,
    /// Bytes decompressed but not yet rewritten.
    plain: Bytes,
    /// Work left until the task yields.
    turn: usize,
    page: Page,
    codec: Codec,
    trailers: Option<HeaderMap>,
    ended: bool,
}

enum Codec {
    Identity,
    Gzip(MultiGzDecoder<Vec<u8>>, GzEncoder<Vec<u8>>),
    Deflate(DeflateDecoder<Vec<u8>>, DeflateEncoder<Vec<u8>>),
}

impl Encoding {
    /// The encoding of a response whose links can be rewritten: `text/html` in a supported encoding.
    pub(crate) fn of_page(headers: &HeaderMap) -> Option<Self> {
        let text = |name| headers.get(name).map_or(Some(""), |v| v.to_str().ok());
        let kind = text(header::CONTENT_TYPE)?;
        if kind.split(';').next().unwrap_or("").trim() != "text/html" {
            return None;
        }
        match text(header::CONTENT_ENCODING)? {
            "" => Some(Self::Identity),
            "gzip" => Some(Self::Gzip),
            "deflate" => Some(Self::Deflate),
            other => {
                tracing::debug!(
                    encoding = other,
                    "links of a page are not rewritten: unsupported encoding"
                );
                None
            }
        }
    }
}

impl<B> Rewritten<B> {
    /// Rewrites the links of a page in this encoding.
    pub(crate) fn new(inner: B, encoding: Encoding, links: Links) -> Self {
        Self {
            inner,
            rest: Bytes::new(),
            plain: Bytes::new(),
            turn: TURN,
            page: Page::new(links),
            codec: Codec::new(encoding),
            trailers: None,
            ended: false,
        }
    }
}

impl Codec {
    fn new(encoding: Encoding) -> Self {
        match encoding {
            Encoding::Identity => Self::Identity,
            Encoding::Gzip => Self::Gzip(
                MultiGzDecoder::new(Vec::new()),
                GzEncoder::new(Vec::new(), Compression::default()),
            ),
            Encoding::Deflate => Self::Deflate(
                DeflateDecoder::new(Vec::new()),
                DeflateEncoder::new(Vec::new(), Compression::default()),
            ),
        }
    }

    /// Decompresses a piece of `packed`, and takes it from there.
    fn unpack(&mut self, packed: &mut Bytes) -> Result<Bytes> {
        fn all<D: Write>(d: &mut D, packed: &[u8]) -> Result<()> {
            d.write_all(packed)?;
            // Flushed, so that the rewriter sees everything that this piece contains.
            d.flush()
        }
        let piece = |packed: &mut Bytes| packed.split_to(PACKED_PIECE.min(packed.len()));
        match self {
            Self::Identity => Ok(std::mem::take(packed)),
            Self::Gzip(d, _) => all(d, &piece(packed)).map(|()| std::mem::take(d.get_mut()).into()),
            Self::Deflate(d, _) => all(d, &piece(packed)).map(|()| std::mem::take(d.get_mut()).into()),
        }
    }

    fn end_of_packed(&mut self) -> Result<Vec<u8>> {
        match self {
            Self::Identity => Ok(Vec::new()),
            Self::Gzip(d, _) => d.try_finish().map(|()| std::mem::take(d.get_mut())),
            Self::Deflate(d, _) => d.try_finish().map(|()| std::mem::take(d.get_mut())),
        }
    }

    fn pack(&mut self, page: Vec<u8>, last: bool) -> Result<Vec<u8>> {
        match self {
            Self::Identity => Ok(page),
            Self::Gzip(_, e) => {
                // Not flushed per piece, which would spoil the compression: output comes when a block is
                // full.
                e.write_all(&page)?;
                if last {
                    e.try_finish()?;
                }
                Ok(std::mem::take(e.get_mut()))
            }
            Self::Deflate(_, e) => {
                e.write_all(&page)?;
                if last {
                    e.try_finish()?;
                }
                Ok(std::mem::take(e.get_mut()))
            }
        }
    }
}

impl<B> Rewritten<B> {
    /// Processes a piece. Returns what can be sent.
    fn step(&mut self) -> Result<Vec<u8>> {
        if self.plain.is_empty() {
            // Only when the last piece is used up, so that no more than one is held decompressed.
            self.plain = self.codec.unpack(&mut self.rest)?;
            self.turn = self.turn.saturating_sub(PACKED_STEP);
            return Ok(Vec::new());
        }
        let piece = self.plain.split_to(PIECE.min(self.plain.len()));
        let mut out = Vec::with_capacity(piece.len() + 64);
        self.page.push(&piece, &mut out);
        self.turn = self.turn.saturating_sub(piece.len() + out.len());
        self.codec.pack(out, false)
    }

    fn end(&mut self) -> Result<Vec<u8>> {
        let plain = self.codec.end_of_packed()?;
        let mut out = Vec::new();
        self.page.push(&plain, &mut out);
        self.page.finish(&mut out);
        self.codec.pack(out, true)
    }
}

impl<B> Body for Rewritten<B>
where
    B: Body<Data = Bytes, Error = BoxError> + Unpin,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        loop {
            if !this.rest.is_empty() || !this.plain.is_empty() {
                // Kept over polls: whoever sends the page polls as long as there is output. A page that compresses
                // well gives none for long.
                if this.turn == 0 {
                    this.turn = TURN;
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                match this.step() {
                    Ok(out) if out.is_empty() => continue,
                    Ok(out) => return Poll::Ready(Some(Ok(Frame::data(out.into())))),
                    Err(e) => {
                        // Nothing more can be decoded: what is left must not be tried again on the next poll.
                        this.rest.clear();
                        this.plain.clear();
                        this.ended = true;
                        return Poll::Ready(Some(Err(e.into())));
                    }
                }
            }
            if this.ended {
                return Poll::Ready(this.trailers.take().map(|t| Ok(Frame::trailers(t))));
            }
            let polled = Pin::new(&mut this.inner).poll_frame(cx);
            // While this waits for the backend, other tasks run.
            if polled.is_pending() {
                this.turn = TURN;
            }
            match ready!(polled) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        this.rest = data;
                        continue;
                    }
                    Err(frame) => this.trailers = frame.into_trailers().ok(),
                },
                Some(Err(e)) => {
                    this.ended = true;
                    return Poll::Ready(Some(Err(e)));
                }
                None => {}
            }
            // Reached at the end of the data or at trailers: the page ends first, then the trailers follow.
            this.ended = true;
            match this.end() {
                Ok(out) if out.is_empty() => {}
                Ok(out) => return Poll::Ready(Some(Ok(Frame::data(out.into())))),
                Err(e) => return Poll::Ready(Some(Err(e.into()))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended && self.trailers.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{BodyExt, StreamBody};

    async fn through(packed: &[u8], size: usize, encoding: Encoding) -> std::result::Result<Bytes, BoxError> {
        let frames: Vec<std::result::Result<Frame<Bytes>, BoxError>> = packed
            .chunks(size)
            .map(|c| Ok(Frame::data(Bytes::copy_from_slice(c))))
            .collect();
        let inner = StreamBody::new(futures_util::stream::iter(frames));
        let body = Rewritten::new(inner, encoding, Links::below("/proxy", &[]));
        Ok(body.collect().await?.to_bytes())
    }

    #[tokio::test]
    async fn compressed_pages_are_rewritten_in_chunks_of_any_size() {
        let page = "<p>text</p>".repeat(500) + "<a href=\"/x\">";
        let want = "<p>text</p>".repeat(500) + "<a href=\"/proxy/x\">";
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(page.as_bytes()).unwrap();
        let gzip = gzip.finish().unwrap();
        let mut deflate = DeflateEncoder::new(Vec::new(), Compression::fast());
        deflate.write_all(page.as_bytes()).unwrap();
        let deflate = deflate.finish().unwrap();
        for size in [1, 100, 1 << 20] {
            let plain = through(page.as_bytes(), size, Encoding::Identity).await.unwrap();
            assert_eq!(plain, want);
            let packed = through(&gzip, size, Encoding::Gzip).await.unwrap();
            let mut unpacked = MultiGzDecoder::new(Vec::new());
            unpacked.write_all(&packed).unwrap();
            assert_eq!(unpacked.finish().unwrap(), want.as_bytes());
            let packed = through(&deflate, size, Encoding::Deflate).await.unwrap();
            let mut unpacked = DeflateDecoder::new(Vec::new());
            unpacked.write_all(&packed).unwrap();
            assert_eq!(unpacked.finish().unwrap(), want.as_bytes());
        }
        assert!(through(b"no gzip", 3, Encoding::Gzip).await.is_err());
    }

    #[test]
    fn one_poll_does_a_bounded_part_of_a_page() {
        let page = vec![b'x'; 4 << 20];
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&page).unwrap();
        let frame = Ok::<_, BoxError>(Frame::data(Bytes::from(gzip.finish().unwrap())));
        let inner = StreamBody::new(futures_util::stream::iter([frame]));
        let mut body = Rewritten::new(inner, Encoding::Gzip, Links::below("/proxy", &[]));
        assert!(turns(&mut body) > page.len() / TURN);
        // Also with output in between.
        let frame = Ok::<_, BoxError>(Frame::data(Bytes::from(page)));
        let inner = StreamBody::new(futures_util::stream::iter([frame]));
        let mut body = Rewritten::new(inner, Encoding::Identity, Links::below("/proxy", &[]));
        assert!(turns(&mut body) > (4 << 20) / TURN);
        // And with nothing in it: the members of this stream are empty.
        let empty = GzEncoder::new(Vec::new(), Compression::fast()).finish().unwrap();
        let frame = Ok::<_, BoxError>(Frame::data(Bytes::from(empty.repeat(1000))));
        let inner = StreamBody::new(futures_util::stream::iter([frame]));
        let mut body = Rewritten::new(inner, Encoding::Gzip, Links::below("/proxy", &[]));
        assert!(turns(&mut body) > 1000 / PACKED_PIECE);
    }

    /// How often this body yields to other tasks.
    fn turns(body: &mut (impl Body + Unpin)) -> usize {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut turns = 0;
        loop {
            match Pin::new(&mut *body).poll_frame(&mut cx) {
                Poll::Ready(None) => return turns,
                Poll::Ready(Some(_)) => {}
                Poll::Pending => turns += 1,
            }
        }
    }

    #[test]
    fn pages_are_html_in_a_supported_encoding() {
        let of = |kind: &str, encoding: &str| {
            let mut h = HeaderMap::new();
            h.insert(header::CONTENT_TYPE, kind.parse().unwrap());
            h.insert(header::CONTENT_ENCODING, encoding.parse().unwrap());
            Encoding::of_page(&h)
        };
        assert_eq!(of("text/html; charset=utf-8", ""), Some(Encoding::Identity));
        assert_eq!(of("text/html", "gzip"), Some(Encoding::Gzip));
        assert_eq!(of("text/html", "br"), None);
        assert_eq!(of("text/htmlx", ""), None);
    }
}
