//! Last good documents of backends on disk, so that a gateway that starts while a backend is down lists what it had.
//!
//! One file for each APIService and kind of document, written whole and renamed; of an APIService of another uid nothing is
//! taken. What cannot be read or written is as good as not there: the backend will be asked anyway.

use super::apiservice::ApiService;
use crate::apimachinery::codec::json;
use crate::apimachinery::value::{Map, Value};
use crate::endpoints::openapi::kept::off_thread;
use std::io::ErrorKind;
use std::path::PathBuf;

/// The directory, or nowhere.
#[derive(Clone, Debug, Default)]
pub struct Shelf(Option<PathBuf>);

/// What a document is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Document {
    /// The aggregated discovery entry of the version.
    Discovery,
    /// The paths of `/openapi/v2` below the version.
    OpenApiV2,
    /// The index at `/openapi/v3`.
    OpenApiV3,
    /// The document of the version that the index points to.
    OpenApiV3Last,
}

impl Document {
    /// How many kinds of them there are.
    pub const KINDS: usize = Self::OpenApiV3Last as usize + 1;

    const fn suffix(self) -> &'static str {
        match self {
            Self::Discovery => "discovery.json",
            Self::OpenApiV2 => "openapi-v2.json",
            Self::OpenApiV3 => "openapi-v3.json",
            Self::OpenApiV3Last => "openapi-v3-last.json",
        }
    }
}

impl Shelf {
    /// In this directory, which is made when something is to be kept.
    pub fn at(dir: Option<PathBuf>) -> Self {
        Self(dir)
    }

    /// What was kept of an APIService. Blocks for as long as the file takes to read.
    pub fn load(&self, what: Document, of: &ApiService) -> Option<Value> {
        let place = self.place(what, &of.name)?;
        let unusable = |why: String| tracing::warn!(file = %place.display(), "a document that was kept cannot be used: {why}; the backend is asked for it");
        let bytes = match std::fs::read(&place) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == ErrorKind::NotFound => return None,
            Err(e) => {
                unusable(e.to_string());
                return None;
            }
        };
        let mut file = json::decode(&bytes).map_err(|e| unusable(e.to_string())).ok()?;
        let ours = file.str_at(&["uid"]) == of.uid.as_str() && !of.uid.is_empty();
        ours.then(|| file.unset(&["document"])).flatten()
    }

    /// Keeps a document in place of the last one.
    ///
    /// # Cancel safety
    /// The document is kept or not, never in part.
    pub async fn save(&self, what: Document, of: &ApiService, document: Value) {
        let Some(place) = self.place(what, &of.name) else {
            return;
        };
        let (mut file, name) = (Map::new(), of.name.clone());
        file.insert("uid", of.uid.as_str());
        file.insert("document", document);
        let file = Value::Object(file);
        let written = off_thread(move || {
            let dir = place.parent().unwrap_or(&place);
            std::fs::create_dir_all(dir)?;
            let draft = place.with_extension("draft");
            std::fs::write(&draft, json::to_vec(&file))?;
            std::fs::rename(&draft, &place)
        });
        if let Some(Err(e)) = written.await {
            tracing::warn!(%name, "a document of a backend cannot be kept below <data-dir>/aggregator: {e}");
        }
    }

    /// The APIService is gone.
    pub fn remove(&self, what: Document, name: &str) {
        if let Some(place) = self.place(what, name) {
            // Mostly it is not there.
            let _ = std::fs::remove_file(place);
        }
    }

    fn place(&self, what: Document, name: &str) -> Option<PathBuf> {
        // As the store validates names; a file name must not be a path.
        let plain = !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0']) && name.len() < 200;
        let dir = self.0.as_ref().filter(|_| plain)?;
        Some(dir.join(format!("{name}.{}", what.suffix())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[tokio::test]
    async fn a_document_is_kept_for_its_object_alone() {
        let dir = tempfile::tempdir().unwrap();
        let shelf = Shelf::at(Some(dir.path().join("aggregator")));
        let of = |uid: &str| ApiService::from_value(&json!({"metadata": {"name": "v1.g", "uid": (uid)}, "spec": {}}));
        shelf.save(Document::Discovery, &of("1"), json!({"a": 1})).await;
        assert_eq!(shelf.load(Document::Discovery, &of("1")), Some(json!({"a": 1})));
        assert_eq!(shelf.load(Document::Discovery, &of("2")), None);
        assert_eq!(shelf.load(Document::OpenApiV2, &of("1")), None);
        shelf.remove(Document::Discovery, "v1.g");
        assert_eq!(shelf.load(Document::Discovery, &of("1")), None);
        assert!(shelf.place(Document::Discovery, "../x").is_none());
    }
}
