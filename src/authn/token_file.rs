//! Static tokens (`--token-auth-file`): a CSV file of `token,user,uid[,"group1,group2"]`, read once at
//! startup.

use super::{AuthenticationError, PresentedToken, TokenAuthenticator, TokenUser, add_authenticated};
use crate::request::UserInfo;
use async_trait::async_trait;
use aws_lc_rs::digest::{SHA256, digest};
use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Authenticates the tokens of a file. Looked up by SHA-256 digest, so lookup time reveals nothing about
/// stored tokens.
#[derive(Debug)]
pub struct TokenFile(HashMap<[u8; 32], Arc<UserInfo>>);

/// Why a token file cannot be used: file, line, and how to correct it.
#[derive(Debug, PartialEq, Eq)]
pub struct TokenFileError(String);

impl TokenFile {
    /// Reads a file.
    ///
    /// # Errors
    /// `TokenFileError` if it cannot be read or parsed.
    pub fn read(path: &Path) -> Result<Self, TokenFileError> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| TokenFileError(format!("token file '{}' cannot be read: {e}", path.display())))?;
        Self::parse(&path.display().to_string(), &text)
    }

    /// Parses the text of a file; `path` is for error messages.
    ///
    /// # Errors
    /// `TokenFileError` with the invalid line.
    pub fn parse(path: &str, text: &str) -> Result<Self, TokenFileError> {
        let mut tokens = HashMap::new();
        for (line, record) in records(path, text)? {
            if record.len() < 3 {
                return Err(TokenFileError(format!(
                    "token file '{path}' must have at least 3 columns (token, user name, user uid), found {} in line \
                     {line}; write token,user,uid or token,user,uid,\"group1,group2\"",
                    record.len()
                )));
            }
            let [token, name, uid] = [0, 1, 2].map(|i| record[i].as_str());
            if token.is_empty() {
                tracing::warn!(file = path, line, "empty token in the token file, line skipped");
                continue;
            }
            // Not trimmed, as upstream: "dev, ops" names a group with a leading space.
            let groups = record.get(3).filter(|g| !g.is_empty());
            let mut user = UserInfo {
                name: name.to_owned(),
                uid: uid.to_owned(),
                groups: groups.map_or_else(Vec::new, |g| g.split(',').map(str::to_owned).collect()),
                ..Default::default()
            };
            add_authenticated(&mut user);
            // A warning, as upstream's: files in use may have duplicates, and refusing to start would lock
            // everybody out.
            if tokens.insert(hash(token), Arc::new(user)).is_some() {
                tracing::warn!(
                    file = path,
                    line,
                    "duplicate token in the token file, the last one wins"
                );
            }
        }
        Ok(Self(tokens))
    }
}

#[async_trait]
impl TokenAuthenticator for TokenFile {
    async fn authenticate_token(
        &self,
        presented: PresentedToken<'_>,
    ) -> Result<Option<TokenUser>, AuthenticationError> {
        Ok(self.0.get(&hash(presented.token)).cloned().map(TokenUser::from))
    }
}

fn hash(token: &str) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    out
}

/// Parses CSV like Go's `encoding/csv`: quoted fields may contain commas, doubled quotes and line breaks, and
/// empty lines are skipped. Returns each record with the number of its first line.
fn records(path: &str, text: &str) -> Result<Vec<(usize, Vec<String>)>, TokenFileError> {
    let bad = |line: usize, what: &str, mend: &str| {
        Err(TokenFileError(format!(
            "token file '{path}', line {line}: {what}; {mend}"
        )))
    };
    let mut out = Vec::new();
    let mut chars = text.chars().peekable();
    let mut line = 1;
    while chars.peek().is_some() {
        let first_line = line;
        let mut record = Vec::new();
        loop {
            let mut field = String::new();
            if chars.next_if_eq(&'"').is_some() {
                loop {
                    match chars.next() {
                        None => return bad(first_line, "a quote is never closed", "end the field with \""),
                        Some('"') if chars.next_if_eq(&'"').is_some() => field.push('"'),
                        Some('"') => break,
                        Some(c) => {
                            line += usize::from(c == '\n');
                            field.push(c);
                        }
                    }
                }
                // The carriage return of a CRLF line end; elsewhere it is data.
                chars.next_if_eq(&'\r');
                if chars.peek().is_some_and(|c| !matches!(c, ',' | '\n')) {
                    return bad(
                        line,
                        "text after a closing quote",
                        "double the quotes inside a quoted field",
                    );
                }
            } else {
                while let Some(c) = chars.next_if(|c| !matches!(c, ',' | '\n')) {
                    if c == '"' {
                        return bad(
                            line,
                            "a bare quote",
                            "put the whole field in quotes and double those inside",
                        );
                    }
                    field.push(c);
                }
                // Only at the end of a line, as Go's reader normalises CRLF.
                if chars.peek() != Some(&',') && field.ends_with('\r') {
                    field.pop();
                }
            }
            record.push(field);
            if chars.next_if_eq(&',').is_none() {
                break;
            }
        }
        if chars.next_if_eq(&'\n').is_some() {
            line += 1;
        }
        if record != [""] {
            out.push((first_line, record));
        }
    }
    Ok(out)
}

impl fmt::Display for TokenFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TokenFileError {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    async fn user(file: &TokenFile, token: &str) -> Option<Arc<UserInfo>> {
        let presented = PresentedToken { token, audiences: &[] };
        file.authenticate_token(presented).await.unwrap().map(|u| u.user)
    }

    #[tokio::test]
    async fn lines_define_users_and_groups() {
        let text = "t1,jane,u1,\"dev,ops \"\r\n\nt2,joe,\n,nobody,x\nt1,jill,u3,one\n";
        let f = TokenFile::parse("f", text).unwrap();
        assert_eq!(f.0.len(), 2);
        let jill = user(&f, "t1").await.unwrap();
        assert_eq!(
            (jill.name.as_str(), jill.groups.as_slice()),
            ("jill", &["one".to_owned(), "system:authenticated".to_owned()][..])
        );
        assert_eq!(user(&f, "t2").await.unwrap().uid, "");
        assert!(user(&f, "").await.is_none() && user(&f, "t").await.is_none());
    }

    #[test]
    fn errors_name_the_line_and_the_correction() {
        let e = |text| TokenFile::parse("/t.csv", text).unwrap_err().to_string();
        let short = e("a,b,c\nx,y\n");
        assert!(
            short.starts_with("token file '/t.csv' must have at least 3 columns (token, user name, user uid), found 2")
        );
        assert!(short.contains("line 2") && short.contains("token,user,uid"));
        assert!(e("a,b,c\nd,\"e\"f,g").contains("line 2: text after a closing quote"));
        assert!(e("a,b\"c,d").contains("line 1: a bare quote"));
        assert!(e("a,b,c,\"d").contains("never closed"));
    }

    proptest! {
        #[test]
        fn quoted_fields_round_trip(fields in proptest::collection::vec("[a-z,\"\n ]{1,8}", 3..5)) {
            let line: Vec<String> = fields.iter().map(|f| format!("\"{}\"", f.replace('"', "\"\""))).collect();
            let got = records("f", &line.join(",")).unwrap();
            prop_assert_eq!(&got[0].1, &fields);
        }
    }
}
