//! Disk cache of the last good documents of backends, so that a gateway that starts while a backend is down
//! can still list its resources.
//!
//! One file per APIService and kind of document, replaced atomically by rename. A file is ignored if its
//! APIService had another UID. Errors are only logged, since the backend will be queried anyway. Entry
//! points: [`DiskCache::load`], [`DiskCache::save`].

use super::apiservice::ApiService;
use super::documents::{DocumentKind, Documents};
use crate::apimachinery::codec::json;
use crate::apimachinery::value::{Map, Value};
use crate::tasks::off_thread;
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Estimated memory of encoding a document, in bytes. The compute pool accounts for it if a request triggers
/// the work.
const MEMORY: usize = 1 << 20;

/// The disk cache. Without a directory it stores nothing.
#[derive(Clone, Default)]
pub(crate) struct DiskCache {
    dir: Option<PathBuf>,
    documents: Documents,
}

impl DiskCache {
    /// Uses this directory, which is created on the first save. Tightens the permissions of existing files,
    /// since earlier versions left them readable: backends' documents are private to the gateway.
    pub(crate) fn at(dir: Option<PathBuf>, documents: Documents) -> Self {
        if let Some(dir) = &dir
            && let Err(e) = restrict_permissions(dir)
            && e.kind() != ErrorKind::NotFound
        {
            tracing::warn!(dir = %dir.display(), "cannot restrict the permissions of the cache of backends' documents: {e}");
        }
        Self { dir, documents }
    }

    /// The limits that apply to documents.
    pub(crate) fn documents(&self) -> &Documents {
        &self.documents
    }

    /// Loads a document, subject to the current limits. Blocks on file I/O.
    pub(crate) fn load(&self, what: DocumentKind, of: &ApiService) -> Option<Value> {
        let path = self.path(what, &of.name)?;
        let unusable = |why: String| tracing::warn!(file = %path.display(), "cannot use a cached document: {why}; the backend will be queried");
        let most = self.documents.max_cached_bytes(what) as u64;
        let bytes = match read_up_to(&path, most) {
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
        let file = self.documents.parse_cached(what, &bytes);
        let mut file = file.map_err(|e| unusable(e.to_string())).ok()?;
        // Without a UID nothing distinguishes the object from an earlier one of the same name.
        let ours = file.str_at(&["uid"]) == of.uid.as_str() && !of.uid.is_empty();
        ours.then(|| file.unset(&["document"])).flatten()
    }

    /// Stores a document, replacing the previous one.
    ///
    /// # Cancel safety
    /// Cancel safe: the file is replaced as a whole or not at all.
    pub(crate) async fn save(&self, what: DocumentKind, of: &ApiService, document: Value) {
        let Some(path) = self.path(what, &of.name) else {
            return;
        };
        let (mut file, name) = (Map::new(), of.name.clone());
        file.insert("uid", of.uid.as_str());
        file.insert("document", document);
        let file = Value::Object(file);
        let written = off_thread(MEMORY, move || {
            let dir = path.parent().unwrap_or(&path);
            DirBuilder::new().recursive(true).mode(PRIVATE_DIR).create(dir)?;
            // Readers never see half a file. Not synced: after a crash an empty file is ignored, like any
            // other that does not parse.
            let draft = path.with_extension("draft");
            let mut open = OpenOptions::new();
            open.write(true).create(true).truncate(true).mode(PRIVATE_FILE);
            open.open(&draft)?.write_all(&json::to_vec(&file))?;
            std::fs::rename(&draft, &path)
        });
        if let Some(Err(e)) = written.await {
            tracing::warn!(%name, "cannot cache a document of a backend below <data-dir>/aggregator: {e}");
        }
    }

    /// Deletes the document of a deleted APIService.
    pub(crate) fn remove(&self, what: DocumentKind, name: &str) {
        if let Some(path) = self.path(what, name) {
            // Usually it does not exist.
            let _ = std::fs::remove_file(path);
        }
    }

    fn path(&self, what: DocumentKind, name: &str) -> Option<PathBuf> {
        // The store validates names in the same way, but this path must not depend on it: a file name must
        // not be a path.
        let plain = !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0']) && name.len() < 200;
        let dir = self.dir.as_ref().filter(|_| plain)?;
        Some(dir.join(format!("{name}.{}", what.suffix())))
    }
}

/// Reads a whole file; `None` if it is larger than `most`.
fn read_up_to(path: &Path, most: u64) -> std::io::Result<Option<Vec<u8>>> {
    let file = File::open(path)?;
    let mut bytes = Vec::with_capacity(file.metadata()?.len().min(most) as usize);
    // One byte more than allowed reveals a file that is too large, even if it grows meanwhile.
    file.take(most + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= most).then_some(bytes))
}

/// Accessible to the gateway's user only.
const PRIVATE_DIR: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;

fn restrict_permissions(dir: &Path) -> std::io::Result<()> {
    std::fs::set_permissions(dir, Permissions::from_mode(PRIVATE_DIR))?;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        // Symbolic links are not followed: their targets are not ours.
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
    async fn a_document_is_loaded_for_its_own_object_only() {
        let dir = tempfile::tempdir().unwrap();
        let disk_cache = DiskCache::at(Some(dir.path().join("aggregator")), Documents::default());
        let of = |uid: &str| ApiService::from_value(&json!({"metadata": {"name": "v1.g", "uid": (uid)}, "spec": {}}));
        let entry = json!({"version": "v1"});
        disk_cache.save(DocumentKind::Discovery, &of("1"), entry.clone()).await;
        assert_eq!(disk_cache.load(DocumentKind::Discovery, &of("1")), Some(entry));
        assert_eq!(disk_cache.load(DocumentKind::Discovery, &of("2")), None);
        assert_eq!(disk_cache.load(DocumentKind::OpenApiV2, &of("1")), None);
        disk_cache.remove(DocumentKind::Discovery, "v1.g");
        assert_eq!(disk_cache.load(DocumentKind::Discovery, &of("1")), None);
        assert!(disk_cache.path(DocumentKind::Discovery, "../x").is_none());
    }

    #[test]
    fn a_file_beyond_the_current_limits_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let of = ApiService::from_value(&json!({"metadata": {"name": "v1.g", "uid": "1"}, "spec": {}}));
        let limits = DocumentLimits {
            discovery: 1 << 20,
            openapi: 1 << 20,
        };
        let disk_cache = DiskCache::at(Some(dir.path().to_owned()), Documents::new(limits));
        let write = |document: &str| {
            let text = format!(r#"{{"uid":"1","document":{document}}}"#);
            std::fs::write(dir.path().join("v1.g.discovery.json"), text).unwrap();
        };
        write(r#"{"version":"v1","junk":[{},{}]}"#);
        assert_eq!(
            disk_cache.load(DocumentKind::Discovery, &of),
            Some(json!({"version": "v1"}))
        );
        write(&format!(r#"{{"version":"v1","junk":"{}"}}"#, "x".repeat(3 << 20)));
        assert_eq!(disk_cache.load(DocumentKind::Discovery, &of), None);
        write(&format!(r#"{{"resources":[{}{{}}]}}"#, "{},".repeat(200_000)));
        assert_eq!(disk_cache.load(DocumentKind::Discovery, &of), None);
    }

    #[tokio::test]
    async fn permissions_are_private_even_for_existing_files() {
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let dir = tempfile::tempdir().unwrap();
        let cache_dir = dir.path().join("aggregator");
        let of = ApiService::from_value(&json!({"metadata": {"name": "v1.g", "uid": "1"}, "spec": {}}));
        let file = cache_dir.join("v1.g.discovery.json");
        DiskCache::at(Some(cache_dir.clone()), Documents::default())
            .save(DocumentKind::Discovery, &of, json!({"a": 1}))
            .await;
        assert_eq!((mode(&cache_dir), mode(&file)), (0o700, 0o600));
        std::fs::set_permissions(&cache_dir, Permissions::from_mode(0o755)).unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        let _ = DiskCache::at(Some(cache_dir.clone()), Documents::default());
        assert_eq!((mode(&cache_dir), mode(&file)), (0o700, 0o600));
    }
}
