//! Table schema, checksums, and the upgrade from the previous format version.

use rusqlite::{Connection, params};

/// Format 2: checksums also cover the order of writes, times to live and the meta row.
pub(super) const FORMAT: i64 = 2;
/// "Tora" in ASCII, by which `file` and SQLite's tools recognise the database.
pub(super) const APPLICATION: i64 = 0x546f_7261;

pub(super) const SCHEMA: &str = "
CREATE TABLE log(revision INTEGER PRIMARY KEY, key TEXT NOT NULL, prev INTEGER NOT NULL, value BLOB, sum INTEGER NOT NULL);
CREATE TABLE live(key TEXT PRIMARY KEY, revision INTEGER NOT NULL, expires INTEGER, sum INTEGER) WITHOUT ROWID;
CREATE TABLE marks(revision INTEGER PRIMARY KEY, at INTEGER NOT NULL);
CREATE TABLE meta(id INTEGER PRIMARY KEY CHECK (id = 1), revision INTEGER NOT NULL, compacted INTEGER NOT NULL,
  objects INTEGER NOT NULL, sum INTEGER NOT NULL);
CREATE TABLE room(space BLOB);
";

// 2^64 divided by the golden ratio: an odd constant that spreads bits well.
const K: u64 = 0x9e37_79b9_7f4a_7c15;

/// Checksum of a write: detects corruption on disk before the data is served. Not cryptographic.
pub(super) fn checksum(key: &str, revision: u64, prev: u64, value: Option<&[u8]>) -> i64 {
    // A deletion (no value) must differ from an empty value.
    let size = value.map_or(u64::MAX, |v| v.len() as u64);
    let mut sum = revision.wrapping_mul(K) ^ prev.rotate_left(32).wrapping_mul(K) ^ size;
    let mut mix = |word: u64| sum = (sum ^ word).wrapping_mul(K).rotate_left(29);
    for part in [key.as_bytes(), value.unwrap_or_default()] {
        let (words, rest) = part.as_chunks::<8>();
        words.iter().for_each(|w| mix(u64::from_le_bytes(*w)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        // The length of the rest is mixed in, or trailing zero bytes would not change the sum.
        mix(u64::from_le_bytes(last) ^ ((rest.len() as u64) << 56));
    }
    // SQLite stores signed integers only.
    (sum ^ (sum >> 31)).cast_signed()
}

/// Checksum of a sequence of numbers.
pub(super) fn checksum_of(numbers: &[u64]) -> i64 {
    let mix = |sum: u64, n: &u64| (sum ^ n).wrapping_mul(K).rotate_left(29);
    let sum = numbers.iter().fold(K, mix);
    (sum ^ (sum >> 31)).cast_signed()
}

/// Checksum of an object's expiry time; `None` if it has none.
pub(super) fn expiry_sum(revision: u64, expires: Option<i64>) -> Option<i64> {
    expires.map(|at| checksum_of(&[revision, at.cast_unsigned()]))
}

/// Upgrades a store of format 1 in one transaction. A damaged row stays recognisable: it gets an invalid
/// checksum.
pub(super) fn upgrade(db: &mut Connection) -> rusqlite::Result<()> {
    let tx = db.transaction()?;
    {
        // Collected first: updating a table while a statement iterates over it may visit rows twice.
        let all: Vec<i64> = tx
            .prepare("SELECT revision FROM log")?
            .query_map([], |r| r.get(0))?
            .collect::<Result<_, _>>()?;
        let mut read = tx.prepare("SELECT key, prev, value, sum FROM log WHERE revision = ?1")?;
        let mut write = tx.prepare("UPDATE log SET sum = ?2 WHERE revision = ?1")?;
        for revision in all {
            type Found = (String, i64, Option<Vec<u8>>, i64);
            let (key, prev, value, old): Found =
                read.query_row([revision], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?)))?;
            let (revision_, prev) = (revision.cast_unsigned(), prev.cast_unsigned());
            // Format 1 did not include the previous revision in the checksum.
            let was_whole = checksum(&key, revision_, 0, value.as_deref()) == old;
            let new = checksum(&key, revision_, prev, value.as_deref());
            // Repairing the checksum of a damaged row would hide the damage for ever.
            write.execute(params![revision, if was_whole { new } else { !new }])?;
        }
        tx.execute_batch(
            "ALTER TABLE live ADD COLUMN sum INTEGER; CREATE TABLE room(space BLOB);
             ALTER TABLE meta DROP COLUMN clean; ALTER TABLE meta ADD COLUMN sum INTEGER NOT NULL DEFAULT 0;",
        )?;
        let timed: Vec<(String, i64, i64)> = tx
            .prepare("SELECT key, revision, expires FROM live WHERE expires IS NOT NULL")?
            .query_map([], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?)))?
            .collect::<Result<_, _>>()?;
        for (key, revision, at) in timed {
            let sum = expiry_sum(revision.cast_unsigned(), Some(at));
            tx.execute("UPDATE live SET sum = ?2 WHERE key = ?1", params![key, sum])?;
        }
        let meta: [i64; 3] = tx.query_row("SELECT revision, compacted, objects FROM meta", [], |r| {
            Ok([r.get(0)?, r.get(1)?, r.get(2)?])
        })?;
        tx.execute("UPDATE meta SET sum = ?1", [checksum_of(&meta.map(i64::cast_unsigned))])?;
        // In the same transaction: a crash leaves either format 1 or format 2, never a mixture.
        tx.pragma_update(None, "user_version", FORMAT)?;
    }
    tx.commit()
}
