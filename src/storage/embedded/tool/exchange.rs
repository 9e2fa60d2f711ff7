//! Reading and writing all objects of a store at once, for export and import: [`objects`] and [`fill`].

use super::super::DirectoryLock;
use super::super::disk::{Disk, Row, refuse_half_restored};
use super::super::format::checksum;
use super::{OpenError, Progress, clear, file, open_store};
use bytes::Bytes;
use std::path::Path;

/// An object as it is exported and imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    /// With the prefix of its resource.
    pub key: String,
    /// The revision of its last write.
    pub revision: u64,
    /// The stored bytes, possibly encrypted.
    pub value: Bytes,
    /// Expiry time in milliseconds since 1970.
    pub expires: Option<i64>,
}

/// Returns the store's revision and all objects in order of revision. The store may be in use.
///
/// # Errors
/// [`OpenError`] if the store is missing, damaged or inaccessible.
pub(crate) fn objects(dir: &Path) -> Result<(u64, Vec<Object>), OpenError> {
    let path = file(dir);
    let db = open_store(dir)?;
    let sql = |e| OpenError::sqlite(&path, e);
    let revision: i64 = db
        .query_row("SELECT revision FROM meta", [], |r| r.get(0))
        .map_err(sql)?;
    // Ascending revisions let the import write them in order.
    let all = "SELECT live.key, live.revision, live.expires, log.value, log.sum, log.prev
        FROM live JOIN log ON log.revision = live.revision ORDER BY live.revision";
    let mut all = db.prepare(all).map_err(sql)?;
    let mut rows = all.query([]).map_err(sql)?;
    let mut out = Vec::new();
    while let Some(row) = rows.next().map_err(sql)? {
        let (key, at): (String, i64) = (row.get(0).map_err(sql)?, row.get(1).map_err(sql)?);
        let value: Vec<u8> = row.get(3).map_err(sql)?;
        let prev: i64 = row.get(5).map_err(sql)?;
        // A damaged value must not travel into another store under a fresh checksum.
        if checksum(&key, at.cast_unsigned(), prev.cast_unsigned(), Some(&value))
            != row.get::<_, i64>(4).map_err(sql)?
        {
            let why = format!("revision {at} of {key} does not match its checksum");
            return Err(OpenError::damaged(&path, why));
        }
        out.push(Object {
            key,
            revision: at.cast_unsigned(),
            value: value.into(),
            expires: row.get(2).map_err(sql)?,
        });
    }
    Ok((revision.cast_unsigned(), out))
}

/// Creates a store at `revision` in a directory that has none. The objects keep their revisions and must be
/// in order of revision.
///
/// # Errors
/// [`OpenError`]: a store exists already, or writing failed; nothing is left behind then.
pub(crate) fn fill(dir: &Path, revision: u64, objects: &[Object], progress: Progress<'_>) -> Result<(), OpenError> {
    let _lock = DirectoryLock::acquire(dir)?;
    refuse_half_restored(dir)?;
    let path = file(dir);
    if path.exists() {
        return Err(OpenError::Exists { path });
    }
    // Built in a subdirectory and renamed, so that no partial store can be opened.
    let staging = dir.join("filling");
    let io = |path: &Path, source| OpenError::Io {
        path: path.to_path_buf(),
        source,
    };
    std::fs::create_dir_all(&staging).map_err(|e| io(&staging, e))?;
    // Left by an attempt that was interrupted.
    clear(&file(&staging))?;
    let filled = fill_file(&staging, revision, objects, progress);
    let moved = filled.and_then(|()| std::fs::rename(file(&staging), &path).map_err(|e| io(&path, e)));
    // Best effort: an incomplete attempt is useless.
    let _ = std::fs::remove_dir_all(&staging);
    moved?;
    let synced = std::fs::File::open(dir).and_then(|d| d.sync_all());
    synced.map_err(|e| io(dir, e))
}

fn fill_file(dir: &Path, revision: u64, objects: &[Object], progress: Progress<'_>) -> Result<(), OpenError> {
    let path = file(dir);
    let mut disk = Disk::open(dir, None)?;
    // Verifies the empty store and sets the counters that `commit` builds on.
    disk.load(0)?;
    let total = objects.len() as u64;
    let mut done = 0;
    for chunk in objects.chunks(1000) {
        done += chunk.len() as u64;
        let rows: Vec<Row> = chunk
            .iter()
            .map(|o| Row {
                revision: o.revision,
                key: o.key.clone(),
                // No history is imported, so there is no earlier state.
                prev: 0,
                value: Some(o.value.clone()),
                expires: o.expires,
            })
            .collect();
        disk.commit(&rows, done).map_err(|e| OpenError::sqlite(&path, e))?;
        progress(done, total);
    }
    // The store's revision may be ahead of every object's, when the last write was a deletion.
    disk.set_revision(revision).map_err(|e| OpenError::sqlite(&path, e))?;
    disk.close().map_err(|e| OpenError::sqlite(&path, e))
}
