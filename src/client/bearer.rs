//! The bearer token that a client presents: fixed, or read again from its file, because projected tokens are
//! replaced before they expire.

use http::HeaderValue;
use http::header::InvalidHeaderValue;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How long the content of a file is used: client-go's minute less its leeway (`transport/token_source.go`).
const PERIOD: Duration = Duration::from_secs(50);

/// The token of a client, read again from its file (if it has one), since such tokens are rotated.
pub(super) struct BearerToken {
    /// Where newer tokens are.
    file: Option<PathBuf>,
    current: Mutex<Current>,
}

struct Current {
    header: HeaderValue,
    /// When the file is read again.
    until: Instant,
}

/// Why a token file cannot be used.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error(transparent)]
    Read(#[from] std::io::Error),
    #[error("it is empty")]
    Empty,
    #[error(transparent)]
    Header(#[from] InvalidHeaderValue),
}

fn header(token: &str) -> Result<HeaderValue, InvalidHeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}"))?;
    // HPACK then never indexes it, and `Debug` does not print it.
    value.set_sensitive(true);
    Ok(value)
}

async fn read(file: &Path) -> Result<HeaderValue, Unusable> {
    match tokio::fs::read_to_string(file).await?.trim() {
        "" => Err(Unusable::Empty),
        token => Ok(header(token)?),
    }
}

impl BearerToken {
    /// This token; with a file, until that is read before the first use.
    ///
    /// # Errors
    /// The token contains bytes that are not allowed in a header.
    pub(super) fn try_new(token: &str, file: Option<PathBuf>) -> Result<Self, InvalidHeaderValue> {
        let current = Current {
            header: header(token)?,
            until: Instant::now(),
        };
        Ok(Self {
            file,
            current: Mutex::new(current),
        })
    }

    /// The `Authorization` header, marked as sensitive.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn header(&self) -> HeaderValue {
        // Held while the file is read: one request reads, and the others wait for the newer token.
        let mut current = self.current.lock().await;
        if let Some(file) = &self.file
            && Instant::now() >= current.until
        {
            match read(file).await {
                Ok(header) => current.header = header,
                Err(error) => {
                    tracing::error!(%error, file = %file.display(), "the token file cannot be used; the previous token stays");
                }
            }
            // Also after a failure, so that not every request tries a file that is missing.
            current.until = Instant::now() + PERIOD;
        }
        current.header.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_replaced_token_is_used_within_a_minute() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        std::fs::write(&file, "first\n").unwrap();
        let token = BearerToken::try_new("parsed", Some(file.clone())).unwrap();
        assert_eq!(token.header().await, "Bearer first");
        std::fs::write(&file, "second\n").unwrap();
        assert_eq!(token.header().await, "Bearer first");
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(token.header().await, "Bearer second");
        std::fs::remove_file(&file).unwrap();
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(token.header().await, "Bearer second");
        assert!(BearerToken::try_new("two\nlines", None).is_err());
    }
}
