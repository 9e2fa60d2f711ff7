//! [`StoredJson`], the encoding of a stored object: its bytes, or those bytes compressed.
//!
//! Compression is for resources whose objects are large, numerous and rarely read, which their
//! [`ResourceConfig`](super::backend::ResourceConfig) says: a cluster has hundreds of
//! CustomResourceDefinitions of tens of kilobytes, and most of them are never used. Compressed, they take an
//! eighth of the memory. Every reader then pays for the decompression, some 60 µs for 40 KB.
//!
//! The store compresses ([`Draft::compress`](super::Draft::compress)) before the commit assigns the
//! resourceVersion, which is therefore kept beside the compressed bytes and inserted when they are read.

use super::large;
use bytes::Bytes;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use std::borrow::Cow;

/// Size in bytes from which an encoding is compressed. Smaller ones gain little beside what every object
/// costs, and are read on reactors without a second thought.
const COMPRESSED_FROM: usize = 4 << 10;

/// The encoding of a stored object. Clones share its memory.
#[derive(Clone, Debug)]
pub(crate) struct StoredJson(Form);

impl Default for StoredJson {
    fn default() -> Self {
        Bytes::new().into()
    }
}

impl From<Bytes> for StoredJson {
    /// The encoding as it is.
    fn from(json: Bytes) -> Self {
        Self(Form::Plain(json))
    }
}

#[derive(Clone, Debug)]
enum Form {
    Plain(Bytes),
    /// In a box, so that entries of other resources are no larger for it.
    Compressed(Box<Compressed>),
}

#[derive(Clone, Debug)]
struct Compressed {
    draft: CompressedDraft,
    /// Offset at which `version` is inserted.
    at: usize,
    /// The `resourceVersion` member with its comma.
    version: Box<[u8]>,
}

/// The compressed encoding of an object that has no resourceVersion yet. Clones share its memory.
#[derive(Clone, Debug)]
pub(crate) struct CompressedDraft {
    deflated: Bytes,
    /// Length in bytes before compression.
    length: usize,
}

impl CompressedDraft {
    /// Compresses an encoding; `None` if it is small or does not shrink.
    pub(crate) fn new(json: &[u8]) -> Option<Self> {
        if json.len() < COMPRESSED_FROM {
            return None;
        }
        let mut deflated = Vec::with_capacity(json.len() / 4);
        // Fast: definitions compress well at any level, and the writer waits for it. No zlib header, since
        // nobody else reads it.
        let mut compress = Compress::new(Compression::fast(), false);
        // A smaller gain is not worth decompressing for.
        let most = json.len() / 4 * 3;
        loop {
            let rest = &json[compress.total_in() as usize..];
            let status = compress.compress_vec(rest, &mut deflated, FlushCompress::Finish).ok()?;
            if deflated.len() > most {
                return None;
            }
            if status == Status::StreamEnd {
                break;
            }
            // The buffer is full: the stream continues with its next part.
            deflated.reserve(json.len() / 4);
        }
        Some(Self {
            // Shrunk, because the estimate of the capacity stays with the entry.
            deflated: deflated.into_boxed_slice().into(),
            length: json.len(),
        })
    }

    fn inflate(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.length);
        let mut decompress = Decompress::new(false);
        let status = decompress.decompress_vec(&self.deflated, &mut out, FlushDecompress::Finish);
        debug_assert!(matches!(status, Ok(Status::StreamEnd)), "{status:?}");
        // A panic and not an error: only a bug or broken memory can get here, and serving wrong bytes would
        // be worse.
        assert_eq!(out.len(), self.length, "the bytes were compressed by this process");
        out
    }
}

impl StoredJson {
    /// A compressed encoding with the resourceVersion member `version` to be inserted at `at`.
    pub(super) fn compressed(draft: CompressedDraft, at: usize, version: &[u8]) -> Self {
        let version = version.into();
        Self(Form::Compressed(Box::new(Compressed { draft, at, version })))
    }

    /// Length in bytes, decompressed.
    pub(crate) fn len(&self) -> usize {
        match &self.0 {
            Form::Plain(json) => json.len(),
            Form::Compressed(c) => c.draft.length + c.version.len(),
        }
    }

    /// Bytes of memory used.
    pub(super) fn resident(&self) -> usize {
        match &self.0 {
            Form::Plain(json) => json.len(),
            Form::Compressed(c) => size_of::<Compressed>() + c.draft.deflated.len() + c.version.len(),
        }
    }

    /// True if [`bytes`](Self::bytes) has to decompress.
    pub(crate) fn is_compressed(&self) -> bool {
        matches!(self.0, Form::Compressed(_))
    }

    /// The encoding. Constant time unless it [is compressed](Self::is_compressed).
    pub(crate) fn bytes(&self) -> Cow<'_, Bytes> {
        match &self.0 {
            Form::Plain(json) => Cow::Borrowed(json),
            Form::Compressed(c) => {
                let json = c.draft.inflate();
                let (before, after) = json.split_at(c.at);
                Cow::Owned(large::join(&[before, &c.version, after]))
            }
        }
    }

    /// The compressed encoding without the resourceVersion, if this one is compressed.
    pub(super) fn compressed_draft(&self) -> Option<&CompressedDraft> {
        match &self.0 {
            Form::Plain(_) => None,
            Form::Compressed(c) => Some(&c.draft),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_or_incompressible_encodings_stay_as_they_are() {
        assert!(CompressedDraft::new(&vec![b'a'; COMPRESSED_FROM - 1]).is_none());
        assert!(CompressedDraft::new(&vec![b'a'; COMPRESSED_FROM]).is_some());
        let mut random = vec![0; 64 << 10];
        aws_lc_rs::rand::fill(&mut random).unwrap();
        assert!(CompressedDraft::new(&random).is_none());
    }

    #[test]
    fn plain_encodings_take_no_more_than_their_bytes() {
        assert_eq!(size_of::<StoredJson>(), size_of::<Bytes>());
    }

    #[test]
    fn compressed_encodings_are_read_with_their_version() {
        for length in [COMPRESSED_FROM, 100_000, 3 << 20] {
            let json: Vec<u8> = (0..length).map(|i| b"{\"name\":1}"[i * i % 11]).collect();
            let draft = CompressedDraft::new(&json).unwrap();
            let stored = StoredJson::compressed(draft.clone(), 10, b"VERSION");
            assert_eq!(stored.bytes()[..], [&json[..10], b"VERSION", &json[10..]].concat());
            assert_eq!(stored.len(), length + 7);
            assert!(
                stored.is_compressed() && stored.resident() < length / 4,
                "{}",
                stored.resident()
            );
            assert_eq!(
                stored.compressed_draft().unwrap().deflated.as_ptr(),
                draft.deflated.as_ptr()
            );
        }
    }
}
