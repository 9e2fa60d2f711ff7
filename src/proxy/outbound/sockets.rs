//! Access checks for Unix sockets: in which directories they may be, and which user must listen on them.

use super::Outbound;
use crate::proxy::target::Socket;
use crate::proxy::tcp::{self, DialError};
use std::path::PathBuf;
use tokio::net::UnixStream;

impl Outbound {
    /// Allows connections to sockets below these directories; none are allowed by default.
    pub(crate) fn with_socket_dirs(mut self, dirs: impl IntoIterator<Item = PathBuf>) -> Self {
        self.socket_dirs = dirs.into_iter().collect();
        self
    }

    /// Connects to a Unix socket below an allowed directory whose listener runs as the expected user. The
    /// user is read from the connection (`SO_PEERCRED`), so replacing the path in the meantime does not
    /// defeat the check.
    ///
    /// # Errors
    /// [`DialError`], in Go's wording.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future ends the attempt.
    pub(crate) async fn connect_socket(&self, socket: &Socket) -> Result<UnixStream, DialError> {
        let failed = |why: String| DialError(format!("dial unix {}: {why}", socket.path.display()));
        let system = |e: std::io::Error| failed(tcp::system_error("connect", &e));
        // Resolve symbolic links first: the target, not the link, must be below an allowed directory.
        let place = tokio::fs::canonicalize(&socket.path).await.map_err(system)?;
        let mut open = false;
        for dir in &self.socket_dirs {
            // A directory that does not exist allows nothing.
            open |= tokio::fs::canonicalize(dir)
                .await
                .is_ok_and(|dir| place.starts_with(dir));
        }
        if !open {
            return Err(failed("it is not in a directory of --backend-socket-dirs".into()));
        }
        // By its resolved path: the one in the annotation could be replaced after the check.
        let unix = UnixStream::connect(&place).await.map_err(system)?;
        let peer = unix.peer_cred().map_err(system)?.uid();
        let ours = rustix::process::geteuid().as_raw();
        let (is_right, wanted) = match socket.uid {
            Some(uid) => (peer == uid, format!("user {uid}")),
            None => (peer == ours || peer == 0, format!("user {ours} or root")),
        };
        if !is_right {
            return Err(failed(format!("user {peer} listens there, not {wanted}")));
        }
        Ok(unix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::target::Protocol;

    #[tokio::test]
    async fn a_socket_needs_an_allowed_directory_and_the_expected_user() {
        let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = dir.path().join("a.sock");
        let _listener = tokio::net::UnixListener::bind(&path).unwrap();
        let socket = |path: PathBuf, uid| Socket {
            path,
            protocol: Protocol::Http1,
            uid,
        };
        let refusal = |e: Result<UnixStream, DialError>| e.unwrap_err().0;
        let o = Outbound::direct();
        let message = refusal(o.connect_socket(&socket(path.clone(), None)).await);
        assert!(
            message.ends_with("it is not in a directory of --backend-socket-dirs"),
            "{message}"
        );
        let o = o.with_socket_dirs([dir.path().to_owned(), dir.path().join("not-there")]);
        o.connect_socket(&socket(path.clone(), None)).await.unwrap();
        let other = rustix::process::geteuid().as_raw() + 1;
        let message = refusal(o.connect_socket(&socket(path.clone(), Some(other))).await);
        assert!(
            message.ends_with(&format!("listens there, not user {other}")),
            "{message}"
        );
        let gone = dir.path().join("gone.sock");
        let message = refusal(o.connect_socket(&socket(gone.clone(), None)).await);
        assert_eq!(
            message,
            format!("dial unix {}: connect: no such file or directory", gone.display())
        );
        // A link counts as its target, which is outside the directory.
        let outside = elsewhere.path().join("b.sock");
        let _other = tokio::net::UnixListener::bind(&outside).unwrap();
        let link = dir.path().join("link.sock");
        std::os::unix::fs::symlink(&outside, &link).unwrap();
        let message = refusal(o.connect_socket(&socket(link, None)).await);
        assert!(
            message.ends_with("it is not in a directory of --backend-socket-dirs"),
            "{message}"
        );
    }
}
