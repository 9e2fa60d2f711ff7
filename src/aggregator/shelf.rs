//! Last good documents of backends on disk, so that a gateway that starts while a backend is down lists what it had.
//!
//! One file for each APIService and kind of document, written whole and renamed; of an APIService of another uid nothing is
//! taken. What cannot be read or written is as good as not there: the backend will be asked anyway.

use super::apiservice::ApiService;
use super::documents::Documents;
use crate::apimachinery::codec::json;
use crate::apimachinery::value::{Map, Value};
use crate::endpoints::openapi::kept::MEMORY;
use crate::tasks::off_thread;
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// The directory, or nowhere.
#[derive(Clone, Default)]
pub struct Shelf {
    dir: Option<PathBuf>,
    documents: Documents,
}

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
    /// In this directory, which is made when something is to be kept. What is there already, made by a former version, is
    /// closed to others: documents of backends are not for everybody on this machine.
    pub fn at(dir: Option<PathBuf>, documents: Documents) -> Self {
        if let Some(dir) = &dir
            && let Err(e) = close_to_others(dir)
            && e.kind() != ErrorKind::NotFound
        {
            tracing::warn!(dir = %dir.display(), "the directory of backends' documents cannot be closed to others: {e}");
        }
        Self { dir, documents }
    }

    /// What limits documents, on disk and elsewhere.
    pub fn documents(&self) -> &Documents {
        &self.documents
    }

    /// What was kept of an APIService, within the limits of today. Blocks for as long as the file takes to read.
    pub fn load(&self, what: Document, of: &ApiService) -> Option<Value> {
        let place = self.place(what, &of.name)?;
        let unusable = |why: String| tracing::warn!(file = %place.display(), "a document that was kept cannot be used: {why}; the backend is asked for it");
        let most = self.documents.most_kept(what) as u64;
        let bytes = match read_up_to(&place, most) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => {
                unusable(format!("it is larger than {most} bytes"));
                return None;
            }
            Err(e) if e.kind() == ErrorKind::NotFound => return None,
            Err(e) => {
                unusable(e.to_string());
                return None;
            }
        };
        let mut file = self.documents.parse_kept(what, &bytes).map_err(unusable).ok()?;
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
        let written = off_thread(MEMORY, move || {
            let dir = place.parent().unwrap_or(&place);
            DirBuilder::new().recursive(true).mode(PRIVATE_DIR).create(dir)?;
            let draft = place.with_extension("draft");
            let mut open = OpenOptions::new();
            open.write(true).create(true).truncate(true).mode(PRIVATE_FILE);
            open.open(&draft)?.write_all(&json::to_vec(&file))?;
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
        let dir = self.dir.as_ref().filter(|_| plain)?;
        Some(dir.join(format!("{name}.{}", what.suffix())))
    }
}

/// A whole file; `None`: it is larger.
fn read_up_to(place: &Path, most: u64) -> std::io::Result<Option<Vec<u8>>> {
    let file = File::open(place)?;
    let mut bytes = Vec::with_capacity(file.metadata()?.len().min(most) as usize);
    file.take(most + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= most).then_some(bytes))
}

/// For the gateway's user alone.
const PRIVATE_DIR: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;

fn close_to_others(dir: &Path) -> std::io::Result<()> {
    std::fs::set_permissions(dir, Permissions::from_mode(PRIVATE_DIR))?;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        // A link is not followed: what it leads to is not ours.
        if entry.file_type()?.is_file() {
            std::fs::set_permissions(entry.path(), Permissions::from_mode(PRIVATE_FILE))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregator::documents::DocumentLimits;
    use crate::json;

    #[tokio::test]
    async fn a_document_is_kept_for_its_object_alone() {
        let dir = tempfile::tempdir().unwrap();
        let shelf = Shelf::at(Some(dir.path().join("aggregator")), Documents::default());
        let of = |uid: &str| ApiService::from_value(&json!({"metadata": {"name": "v1.g", "uid": (uid)}, "spec": {}}));
        let entry = json!({"version": "v1"});
        shelf.save(Document::Discovery, &of("1"), entry.clone()).await;
        assert_eq!(shelf.load(Document::Discovery, &of("1")), Some(entry));
        assert_eq!(shelf.load(Document::Discovery, &of("2")), None);
        assert_eq!(shelf.load(Document::OpenApiV2, &of("1")), None);
        shelf.remove(Document::Discovery, "v1.g");
        assert_eq!(shelf.load(Document::Discovery, &of("1")), None);
        assert!(shelf.place(Document::Discovery, "../x").is_none());
    }

    #[test]
    fn a_file_beyond_the_limits_of_today_is_not_taken() {
        let dir = tempfile::tempdir().unwrap();
        let of = ApiService::from_value(&json!({"metadata": {"name": "v1.g", "uid": "1"}, "spec": {}}));
        let limits = DocumentLimits {
            discovery: 1 << 20,
            openapi: 1 << 20,
        };
        let shelf = Shelf::at(Some(dir.path().to_owned()), Documents::new(limits));
        let write = |document: &str| {
            let text = format!(r#"{{"uid":"1","document":{document}}}"#);
            std::fs::write(dir.path().join("v1.g.discovery.json"), text).unwrap();
        };
        write(r#"{"version":"v1","junk":[{},{}]}"#);
        assert_eq!(shelf.load(Document::Discovery, &of), Some(json!({"version": "v1"})));
        write(&format!(r#"{{"version":"v1","junk":"{}"}}"#, "x".repeat(3 << 20)));
        assert_eq!(shelf.load(Document::Discovery, &of), None);
        write(&format!(r#"{{"resources":[{}{{}}]}}"#, "{},".repeat(200_000)));
        assert_eq!(shelf.load(Document::Discovery, &of), None);
    }

    #[tokio::test]
    async fn documents_are_private_also_those_of_a_former_version() {
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let dir = tempfile::tempdir().unwrap();
        let kept = dir.path().join("aggregator");
        let of = ApiService::from_value(&json!({"metadata": {"name": "v1.g", "uid": "1"}, "spec": {}}));
        let file = kept.join("v1.g.discovery.json");
        Shelf::at(Some(kept.clone()), Documents::default())
            .save(Document::Discovery, &of, json!({"a": 1}))
            .await;
        assert_eq!((mode(&kept), mode(&file)), (0o700, 0o600));
        std::fs::set_permissions(&kept, Permissions::from_mode(0o755)).unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        let _ = Shelf::at(Some(kept.clone()), Documents::default());
        assert_eq!((mode(&kept), mode(&file)), (0o700, 0o600));
    }
}
