//! Runs work on objects that clients wrote. One may have megabytes, so the size decides whether the work runs in
//! place or in the compute pool. Start at [`compute`].

use super::failure::Failure;
use crate::storage::Entry;
use crate::tasks::off_thread;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use tokio::sync::Notify;

/// Work on fewer bytes takes less than about 200 µs and is done in place.
pub(crate) const LARGE: usize = 16 << 10;

/// Collecting fewer objects of a cache takes less than about 200 µs and is done in place.
const MANY: usize = 4096;

/// Runs `work` on this many bytes of objects, off the reactor if they are many.
///
/// # Errors
/// The process is ending.
pub(crate) async fn compute<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    match bytes < LARGE {
        true => Ok(work()),
        false => off_thread(bytes, work)
            .await
            .ok_or_else(|| Failure::unreadable("the gateway is shutting down")),
    }
}

/// The result of `read` for a stored object, which decodes all or parts of it. `None` without an object.
///
/// # Errors
/// The process is ending.
pub(crate) async fn read<T: Send + 'static>(
    entry: Option<Arc<Entry>>,
    read: impl FnOnce(&Entry) -> T + Send + 'static,
) -> Result<Option<T>, Failure> {
    let Some(entry) = entry else { return Ok(None) };
    compute(entry.json.len(), move || read(&entry)).await.map(Some)
}

/// The result of `list`, which reads a cache of this many objects: off the reactor if they are many.
///
/// # Errors
/// The process is ending.
///
/// # Cancel safety
/// As that of `list`.
pub(crate) async fn list<T, F>(objects: usize, list: F) -> Result<T, Failure>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    match objects < MANY {
        true => Ok(list.await),
        false => polled_off_thread(list).await,
    }
}

/// Notes that a future is to be polled again.
#[derive(Default)]
struct Woken(Notify);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// Polls `work` on other threads, and waits for it here. A list with etcd behind it waits for an answer first, and
/// collects the objects in a later poll.
async fn polled_off_thread<T, F>(work: F) -> Result<T, Failure>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let woken = Arc::new(Woken::default());
    // On the heap, so that the future can move between threads from one poll to the next.
    let mut work = Box::pin(work);
    loop {
        let waker = Waker::from(woken.clone());
        let poll = move || {
            let polled = work.as_mut().poll(&mut Context::from_waker(&waker));
            (polled, work)
        };
        match off_thread(0, poll).await {
            Some((Poll::Ready(done), _)) => return Ok(done),
            Some((Poll::Pending, rest)) => work = rest,
            None => return Err(Failure::unreadable("the gateway is shutting down")),
        }
        // A wake before this point is not lost: `Notify` keeps one permit.
        woken.0.notified().await;
    }
}

/// Splits entries into batches of about a megabyte for [`compute`], each with its size in bytes. An entry counts
/// for at least [`SMALLEST`] bytes.
pub(crate) fn batches(entries: &[Arc<Entry>]) -> impl Iterator<Item = (usize, Vec<Arc<Entry>>)> {
    let mut rest = entries;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let count = rest.iter().take_while(|entry| {
            // Checked before the entry is added: a batch has at least one entry, however large.
            let fits = bytes < BATCH;
            bytes += if fits { size(entry) } else { 0 };
            fits
        });
        let (batch, others) = rest.split_at(count.count());
        rest = others;
        (!batch.is_empty()).then(|| (bytes, batch.to_vec()))
    })
}

// Large enough that the pool's overhead does not matter, small enough that a batch takes some milliseconds.
const BATCH: usize = 1 << 20;
pub(crate) const SMALLEST: usize = 128;

/// About as much as decoding the entry costs, in bytes.
pub(crate) fn size(entry: &Entry) -> usize {
    entry.json.len().max(SMALLEST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use crate::storage::{Draft, Revision};
    use tokio::sync::oneshot;

    fn entry(bytes: usize) -> Arc<Entry> {
        let object = json!({"metadata": {"name": "a"}, "data": (" ".repeat(bytes))});
        Arc::new(Draft::new(&object, Vec::new()).into_entry("x/a", Revision(1)))
    }

    fn here() -> std::thread::ThreadId {
        std::thread::current().id()
    }

    #[tokio::test]
    async fn large_objects_are_read_on_another_thread() {
        let thread = |bytes| async move { read(Some(entry(bytes)), |_| here()).await.unwrap() };
        assert_eq!(thread(100).await, Some(here()));
        assert_ne!(thread(LARGE).await, Some(here()));
    }

    #[tokio::test]
    async fn many_objects_are_listed_on_another_thread() {
        let thread = |objects| async move { list(objects, async { here() }).await.unwrap() };
        assert_eq!(thread(MANY - 1).await, here());
        assert_ne!(thread(MANY).await, here());
        // As a list asks etcd and waits for the answer, which a reactor receives.
        let ((ask, asked), (answer, answered)) = (oneshot::channel(), oneshot::channel());
        let waits = async {
            ask.send(()).unwrap();
            answered.await.unwrap();
            here()
        };
        let answers = async {
            asked.await.unwrap();
            answer.send(()).unwrap();
        };
        let (listed, ()) = tokio::join!(list(MANY, waits), answers);
        assert_ne!(listed.unwrap(), here(), "it is not ready at once");
    }

    #[test]
    fn batches_are_bounded_by_bytes_and_complete() {
        let mut entries: Vec<Arc<Entry>> = (0..3).map(|_| entry(3 << 20)).collect();
        entries.extend((0..9).map(|_| entry(BATCH / 4)));
        let lengths: Vec<usize> = batches(&entries).map(|(_, batch)| batch.len()).collect();
        assert_eq!(lengths, [1, 1, 1, 4, 4, 1]);
        assert!(batches(&entries).all(|(bytes, _)| bytes >= LARGE));
        assert_eq!(batches(&[]).count(), 0);
    }
}
