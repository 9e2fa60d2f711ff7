//! The kubelet's side of SPDY: exec, and port forwarding that echoes whatever is sent.

use super::Tls;
use flate2::{Decompress, FlushDecompress};
use std::collections::HashMap;
use std::io::{Read, Write};

const FIN: u8 = 1;

/// A frame: its first four bytes, flags and payload.
struct Frame {
    head: u32,
    flags: u8,
    payload: Vec<u8>,
}

fn read(io: &mut Tls) -> std::io::Result<Frame> {
    let mut head = [0; 8];
    io.read_exact(&mut head)?;
    let length = u32::from_be_bytes([0, head[5], head[6], head[7]]);
    let mut payload = vec![0; usize::try_from(length).expect("24 bits")];
    io.read_exact(&mut payload)?;
    Ok(Frame {
        head: u32::from_be_bytes([head[0], head[1], head[2], head[3]]),
        flags: head[4],
        payload,
    })
}

fn write(io: &mut Tls, head: u32, flags: u8, payload: &[u8]) -> std::io::Result<()> {
    let length = u32::try_from(payload.len()).expect("small frames only");
    io.write_all(&head.to_be_bytes())?;
    io.write_all(&(u32::from(flags) << 24 | length).to_be_bytes())?;
    io.write_all(payload)?;
    io.flush()
}

fn control(kind: u32) -> u32 {
    0x8003_0000 | kind
}

fn switch(io: &mut Tls, protocol: &str) -> std::io::Result<()> {
    switch_to(io, "SPDY/3.1", protocol)
}

/// Agrees to an upgrade.
pub(crate) fn switch_to(io: &mut Tls, to: &str, protocol: &str) -> std::io::Result<()> {
    write!(
        io,
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: {to}\r\nConnection: Upgrade\r\n\
         X-Stream-Protocol-Version: {protocol}\r\n\r\n"
    )?;
    io.flush()
}

/// Echoes the bytes of the connection, whatever they are, until the client ends or this many have come.
pub(crate) fn echo(mut io: Tls, protocol: &str, mut left: usize) -> std::io::Result<()> {
    switch(&mut io, protocol)?;
    let mut buffer = [0; 4096];
    while left > 0 {
        match io.read(&mut buffer)? {
            0 => return Ok(()),
            n => {
                io.write_all(&buffer[..n])?;
                left = left.saturating_sub(n);
            }
        }
        io.flush()?;
    }
    io.conn.send_close_notify();
    io.flush()
}

/// Port forwarding as kubelets do it, to a port that echoes. For each forwarded connection the client opens
/// the error stream first and the data stream next, with odd ids that ascend.
pub(crate) fn port_forward(mut io: Tls, protocol: &str) -> std::io::Result<()> {
    switch(&mut io, protocol)?;
    // No headers: a zlib stream of stored blocks, which goes on from frame to frame.
    let mut headers = vec![0x78, 0x01];
    loop {
        let frame = read(&mut io)?;
        match frame.head & 0x8000_ffff {
            0x8000_0001 => {
                // The empty block at the end tells readers that nothing of the first is missing.
                headers.extend_from_slice(&[0, 4, 0, 0xfb, 0xff, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
                let reply = [&frame.payload[..4], &headers].concat();
                write(&mut io, control(2), 0, &reply)?;
                headers.clear();
            }
            0x8000_0006 => write(&mut io, control(6), 0, &frame.payload)?,
            // The end of the data is the end of both streams.
            id if id < 0x8000_0000 && id % 4 == 3 => {
                write(&mut io, id, frame.flags & FIN, &frame.payload)?;
                if frame.flags & FIN != 0 {
                    write(&mut io, id - 2, FIN, &[])?;
                }
            }
            _ => {}
        }
    }
}

/// Says the request target on stdout, echoes stdin until it is half-closed, and checks that pings are
/// answered. A target with `command=fail` exits with code 3.
pub(crate) fn exec(mut io: Tls, target: &str, protocol: &str) -> std::io::Result<()> {
    switch(&mut io, protocol)?;
    let wanted = 1 + ["input=1", "output=1", "error=1"]
        .iter()
        .filter(|p| target.contains(**p))
        .count();
    let (mut inflater, mut streams) = (Decompress::new(true), HashMap::new());
    while streams.len() < wanted {
        let frame = read(&mut io)?;
        match frame.head & 0xffff {
            1 => {
                let id = u32::from_be_bytes(frame.payload[..4].try_into().expect("four bytes"));
                assert!(streams.values().all(|opened| *opened < id), "ids ascend");
                let mut block = Vec::with_capacity(256);
                inflater
                    .decompress_vec(&frame.payload[10..], &mut block, FlushDecompress::Sync)
                    .expect("a header block");
                let text = String::from_utf8_lossy(&block).into_owned();
                let names = ["error", "stdin", "stdout", "stderr"];
                let name = names
                    .into_iter()
                    .find(|name| text.ends_with(name))
                    .expect("a stream type");
                streams.insert(name, id);
                write(&mut io, control(2), 0, &id.to_be_bytes())?;
            }
            6 => write(&mut io, control(6), 0, &frame.payload)?,
            kind => panic!("frame {kind} before the streams are open"),
        }
    }
    let stdout = streams.get("stdout").copied().unwrap_or_default();
    write(&mut io, stdout, 0, format!("spdy {target}\n").as_bytes())?;
    let mut is_open = streams.contains_key("stdin");
    while is_open {
        let frame = read(&mut io)?;
        if Some(&frame.head) == streams.get("stdin") {
            write(&mut io, stdout, 0, &frame.payload)?;
            is_open = frame.flags & FIN == 0;
        }
    }
    write(&mut io, control(6), 0, &2u32.to_be_bytes())?;
    loop {
        let frame = read(&mut io)?;
        if frame.head == control(6) && frame.payload == 2u32.to_be_bytes() {
            break;
        }
    }
    for name in ["stdout", "stderr"] {
        if let Some(id) = streams.get(name) {
            write(&mut io, *id, FIN, &[])?;
        }
    }
    let status = if target.contains("command=fail") {
        r#"{"metadata":{},"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}"#
    } else {
        r#"{"metadata":{},"status":"Success"}"#
    };
    write(&mut io, streams["error"], 0, status.as_bytes())?;
    write(&mut io, streams["error"], FIN, &[])?;
    // Until the client closes the connection.
    while read(&mut io).is_ok() {}
    Ok(())
}
