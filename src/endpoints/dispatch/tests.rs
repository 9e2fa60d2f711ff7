use super::*;
use crate::tasks::compute::{ComputePool, Config};
use crate::telemetry::Telemetry;
use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::StreamBody;

fn chunks(sizes: &[usize]) -> Body {
    let frames: Vec<_> = sizes
        .iter()
        .map(|n| Ok::<_, std::io::Error>(Frame::data(Bytes::from(vec![b'x'; *n]))))
        .collect();
    Body::stream(StreamBody::new(stream::iter(frames)))
}

fn pool(body_bytes_per_flow: usize) -> (ComputePool, Telemetry) {
    let telemetry = Telemetry::new();
    let config = Config {
        body_bytes_per_flow,
        ..Config::default()
    };
    (
        ComputePool::start(config, telemetry.compute.clone()).unwrap(),
        telemetry,
    )
}

#[tokio::test]
async fn chunked_bodies_are_received_completely() {
    let (pool, _) = pool(1 << 20);
    let (body, _reservation) = receive(chunks(&[10_000, 1, 20_000]), pool.reservation(pool.flow("a")))
        .await
        .unwrap();
    assert_eq!(body.into_body().as_full().map(<[u8]>::len), Some(30_001));
}

#[tokio::test]
async fn small_bodies_with_a_length_are_received() {
    use http_body_util::{BodyExt as _, Full};
    let announced = Full::new(Bytes::from_static(b"{}")).map_err(|e| -> std::io::Error { match e {} });
    let (pool, _) = pool(1 << 20);
    let (body, _reservation) = receive(Body::stream(announced), pool.reservation(pool.flow("a")))
        .await
        .unwrap();
    assert_eq!(body.into_body().as_full().map(<[u8]>::len), Some(2));
}

#[test]
fn pieces_are_joined_in_order() {
    let bytes: Vec<u8> = (0..700_000_u32).map(|i| (i % 251) as u8).collect();
    let sizes = [1, 5_000, 2, 3, 20_000, 4_095, 4_096, 300_000, 4_000, 300_000];
    let length: usize = sizes.iter().sum();
    // A length may be unknown, right, or wrong.
    for announced in [None, Some(length), Some(1), Some(0), Some(10_000), Some(1 << 20)] {
        let mut pieces = BodyPieces::new(announced);
        let mut at = 0;
        for size in sizes {
            pieces.push(&bytes[at..at + size]);
            at += size;
        }
        if announced == Some(length) {
            assert_eq!(pieces.pieces.len(), 1, "it is not copied again");
        }
        assert_eq!(pieces.join(), &bytes[..at]);
    }
}

#[test]
fn memory_follows_the_bytes_received() {
    let mut pieces = BodyPieces::new(Some(3 << 20));
    pieces.push(&[0; 1000]);
    assert!(
        pieces.pieces[0].capacity() <= 32 << 10,
        "an announced length alone reserves nothing"
    );
    let mut pieces = BodyPieces::new(None);
    (0..100_000).for_each(|_| pieces.push(b"x"));
    let reserved: usize = pieces.pieces.iter().map(Vec::capacity).sum();
    assert!(reserved <= 256 << 10, "{reserved}");
}

#[tokio::test]
async fn oversized_bodies_fail_on_read() {
    let (pool, _) = pool(16 << 20);
    let (body, _reservation) = receive(chunks(&[body::LIMIT, 1]), pool.reservation(pool.flow("a")))
        .await
        .unwrap();
    assert_eq!(body::read(body.into_body()).await.unwrap_err().code, 413);
}

#[tokio::test]
async fn bodies_of_one_caller_share_a_limit() {
    let (pool, telemetry) = pool(50_000);
    let reservation = |user| pool.reservation(pool.flow(user));
    let first = receive(chunks(&[40_000]), reservation("a")).await.unwrap();
    let refused = receive(chunks(&[40_000]), reservation("a")).await.err().unwrap();
    assert_eq!((refused.code, refused.retry_after()), (429, 1));
    assert!(
        receive(chunks(&[40_000]), reservation("b")).await.is_ok(),
        "another caller has its own limit"
    );
    drop(first);
    assert!(receive(chunks(&[40_000]), reservation("a")).await.is_ok());
    let text = String::from_utf8(telemetry.text()).unwrap();
    assert!(text.contains("torana_request_body_bytes 0\n"), "all memory is released");
}
