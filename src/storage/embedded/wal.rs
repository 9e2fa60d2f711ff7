//! Checks SQLite's write-ahead log and its index before SQLite opens them. Entry point: [`check`].
//!
//! SQLite ends a log at the first invalid frame and silently ignores the rest. After a crash that is correct:
//! the last transaction was not acknowledged, and its frames may have reached the disk in any order. Anything
//! beyond that is damage: frames of this log after the end of the torn transaction, or an index that records
//! more frames than are valid (the index is updated after the log is durable). Formats:
//! <https://www.sqlite.org/fileformat2.html#the_write_ahead_log>, <https://www.sqlite.org/walformat.html>.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::Path;

const HEADER: usize = 32;
const FRAME: usize = 24;
const INDEX: usize = 48;
/// Offset in the index of the number of frames already copied into the database file.
const BACKFILLED: usize = 96;

/// How a log is damaged. The message follows the name of the store.
#[derive(Debug, thiserror::Error)]
pub(super) enum Damage {
    #[error("the header of its write-ahead log is invalid")]
    Header,
    #[error("its write-ahead log is invalid after frame {valid_frames} and continues")]
    Gap { valid_frames: u32 },
    #[error("its write-ahead log has only {valid_frames} of {written} frames")]
    Shortened { valid_frames: u32, written: u32 },
}

/// Result of scanning a log.
#[derive(Debug, Default)]
struct Log {
    salts: [u8; 8],
    /// Number of valid frames before the first invalid one.
    valid_frames: u32,
    /// True if frames of this log follow the end of a torn transaction.
    continues_after_tear: bool,
}

/// Checks that opening the store would lose at most one torn transaction.
///
/// # Errors
/// Inner: what is damaged. Outer: an error reading the files.
pub(super) fn check(store: &Path) -> std::io::Result<Result<(), Damage>> {
    let log = match read(&store.with_extension("db-wal"))? {
        Ok(log) => log,
        Err(why) => return Ok(Err(why)),
    };
    if log.continues_after_tear {
        return Ok(Err(Damage::Gap {
            valid_frames: log.valid_frames,
        }));
    }
    let index = match File::open(store.with_extension("db-shm")) {
        Ok(mut file) => {
            let mut bytes = [0; BACKFILLED + 4];
            match file.read_exact(&mut bytes) {
                Ok(()) => bytes,
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(Ok(())),
                Err(e) => return Err(e),
            }
        }
        // Without an index (a clean close, or a copy of the files) nothing is known about lost frames.
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Ok(())),
        Err(e) => return Err(e),
    };
    // An index that is being written or belongs to another format is not evidence; SQLite rebuilds it.
    Ok(match known_frames(&index) {
        Some((salts, frames, moved)) if frames > log.valid_frames => {
            // Not a loss: an empty log whose frames are all in the database, and an index that belongs to
            // another log.
            let other = log.valid_frames > 0 && salts != log.salts;
            if other || (log.valid_frames == 0 && moved >= frames) {
                Ok(())
            } else {
                Err(Damage::Shortened {
                    valid_frames: log.valid_frames,
                    written: frames,
                })
            }
        }
        _ => Ok(()),
    })
}

fn number(bytes: &[u8], at: usize, big: bool) -> u32 {
    // Log fields are big-endian; the checksummed words are in the byte order that the magic number states.
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    if big {
        u32::from_be_bytes(word)
    } else {
        u32::from_le_bytes(word)
    }
}

/// SQLite's running checksum, over whole pairs of 32-bit words.
fn sum(mut s: (u32, u32), bytes: &[u8], big: bool) -> (u32, u32) {
    for at in (0..bytes.len()).step_by(8) {
        s.0 = s.0.wrapping_add(number(bytes, at, big)).wrapping_add(s.1);
        s.1 = s.1.wrapping_add(number(bytes, at + 4, big)).wrapping_add(s.0);
    }
    s
}

/// Fills the buffer; false if the file ends first.
fn fill(from: &mut impl Read, into: &mut [u8]) -> std::io::Result<bool> {
    match from.read_exact(into) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(e) => Err(e),
    }
}

fn read(path: &Path) -> std::io::Result<Result<Log, Damage>> {
    let mut log = Log::default();
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Ok(log)),
        Err(e) => return Err(e),
    };
    let mut file = BufReader::with_capacity(1 << 16, file);
    let mut header = [0; HEADER];
    // A log that was only created or preallocated.
    if !fill(&mut file, &mut header)? || header == [0; HEADER] {
        return Ok(Ok(log));
    }
    let big = header[3] & 1 == 1;
    let page = number(&header, 8, true) as usize;
    // The header's checksum seeds that of the first frame.
    let mut s = sum((0, 0), &header[..24], big);
    let magic = number(&header, 0, true) & !1 == 0x377f_0682;
    if !magic || s != (number(&header, 24, true), number(&header, 28, true)) || !(512..=65_536).contains(&page) {
        return Ok(Err(Damage::Header));
    }
    log.salts.copy_from_slice(&header[16..24]);
    let mut frame = vec![0; FRAME + page];
    let (mut torn, mut ended) = (false, false);
    while fill(&mut file, &mut frame)? {
        // Salts change whenever the log is restarted; frames of an earlier round have others.
        let ours = frame[8..16] == log.salts;
        // A commit frame carries the size of the database in pages, others zero.
        let is_last = number(&frame, 4, true) != 0;
        if torn {
            log.continues_after_tear |= ours && ended;
            ended |= ours && is_last;
            continue;
        }
        // The checksum runs over the frame's first eight bytes and its page, but not over the salts.
        let next = sum(sum(s, &frame[..8], big), &frame[FRAME..], big);
        if ours && next == (number(&frame, 16, true), number(&frame, 20, true)) {
            s = next;
            log.valid_frames += 1;
        } else {
            torn = true;
            // Frames left over from an earlier log differ in both salts; if only one differs, the frame was
            // corrupted.
            let nearly = frame[8..12] == log.salts[..4] || frame[12..16] == log.salts[4..];
            ended = nearly && is_last;
        }
    }
    Ok(Ok(log))
}

/// Salts, number of frames and number of copied frames of the index; `None` if its header is invalid.
fn known_frames(index: &[u8]) -> Option<([u8; 8], u32, u32)> {
    let big = cfg!(target_endian = "big");
    let (one, two) = (&index[..INDEX], &index[INDEX..2 * INDEX]);
    // The index is in the machine's byte order, unlike the log.
    let s = sum((0, 0), &one[..40], big);
    // A writer updates the second copy before the first; readers trust the header only if both agree.
    let is_whole = one == two && one[12] == 1 && s == (number(one, 40, big), number(one, 44, big));
    let mut salts = [0; 8];
    salts.copy_from_slice(&one[32..40]);
    is_whole.then(|| (salts, number(one, 16, big), number(index, BACKFILLED, big)))
}
