//! Certificates generated for a test, and clients that send exactly the given bytes.

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use torana::apimachinery::Value;
use torana::apimachinery::codec::json;

/// A certificate authority.
pub(crate) struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pub pem: String,
}

/// A certificate and its key.
pub(crate) struct Identity {
    pub cert: String,
    pub key: String,
}

impl Ca {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a CA").pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// A CA that a gateway generated.
    pub(crate) fn of(pki: &Path, name: &str) -> Self {
        let read = |end: &str| std::fs::read_to_string(pki.join(format!("{name}.{end}"))).expect("it was generated");
        let pem = read("crt");
        let key = KeyPair::from_pem(&read("key")).expect("a key");
        Self {
            issuer: Issuer::from_ca_cert_pem(&pem, key).expect("a CA"),
            pem,
        }
    }

    fn sign(&self, params: &CertificateParams) -> Identity {
        let key = KeyPair::generate().expect("a key");
        Identity {
            cert: params.signed_by(&key, &self.issuer).expect("a certificate").pem(),
            key: key.serialize_pem(),
        }
    }

    pub(crate) fn client(&self, name: &str, groups: &[&str]) -> Identity {
        let mut params = CertificateParams::default();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.distinguished_name.push(DnType::CommonName, name);
        for group in groups {
            params.distinguished_name.push(DnType::OrganizationName, *group);
        }
        self.sign(&params)
    }

    pub(crate) fn server(&self, names: &[&str]) -> Identity {
        let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(&params)
    }
}

impl Identity {
    pub(crate) fn chain(&self) -> Vec<CertificateDer<'static>> {
        vec![CertificateDer::from_pem_slice(self.cert.as_bytes()).expect("a certificate")]
    }

    pub(crate) fn private_key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_slice(self.key.as_bytes()).expect("a key")
    }
}

type Tls = rustls::StreamOwned<rustls::ClientConnection, TcpStream>;

/// A client that keeps its connection between requests.
pub(crate) struct Caller {
    address: String,
    config: Arc<rustls::ClientConfig>,
    open: Option<Tls>,
}

#[derive(Debug)]
pub(crate) struct GatewayResponse {
    pub code: u16,
    pub body: String,
}

impl GatewayResponse {
    pub(crate) fn json(&self) -> Value {
        json::decode(self.body.as_bytes()).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

/// The user as reported by the server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Who {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: String,
}

pub(crate) fn whoami_of(review: &Value) -> Who {
    let user = review.at(&["status", "userInfo"]);
    let text = |key: &str| user.str_at(&[key]).to_owned();
    let groups = user.get("groups").items();
    let extra = match user.get("extra") {
        Value::Null => String::new(),
        extra => String::from_utf8(json::to_vec(extra)).expect("JSON is text"),
    };
    Who {
        name: text("username"),
        uid: text("uid"),
        groups: groups.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        extra,
    }
}

impl Caller {
    /// `url` is `https://host:port`; `trusts` is the PEM of the CA of the server's certificate.
    pub(crate) fn new(url: &str, trusts: &[u8], identity: Option<&Identity>) -> Self {
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(trusts) {
            roots.add(certificate.expect("a certificate")).expect("a CA");
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the defaults are safe")
            .with_root_certificates(roots);
        let config = match identity {
            None => config.with_no_client_auth(),
            Some(id) => config
                .with_client_auth_cert(id.chain(), id.private_key())
                .expect("the key fits"),
        };
        Self {
            address: url.trim_start_matches("https://").to_owned(),
            config: Arc::new(config),
            open: None,
        }
    }

    /// A client of that gateway.
    pub(crate) fn of(g: &crate::support::Gateway, identity: Option<&Identity>) -> Self {
        let ca = std::fs::read(g.dir.join("data/pki/ca.crt")).expect("the CA is there");
        Self::new(&g.url(), &ca, identity)
    }

    fn connect(&self) -> io::Result<Tls> {
        let tcp = TcpStream::connect(&self.address)?;
        tcp.set_read_timeout(Some(Duration::from_secs(30)))?;
        tcp.set_nodelay(true)?;
        let name = ServerName::try_from("localhost").expect("a name");
        let connection = rustls::ClientConnection::new(self.config.clone(), name).map_err(io::Error::other)?;
        Ok(rustls::StreamOwned::new(connection, tcp))
    }

    /// Closes the connection; the next request opens a new one.
    pub(crate) fn close(&mut self) {
        self.open = None;
    }

    /// Sends a request over the current connection, or over a new one if there is none or the server has
    /// closed it.
    pub(crate) fn send(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> GatewayResponse {
        let mut text = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n");
        for (name, value) in headers {
            text += &format!("{name}: {value}\r\n");
        }
        if !body.is_empty() {
            let length = body.len();
            text += &format!("Content-Type: application/json\r\nContent-Length: {length}\r\n");
        }
        text += "\r\n";
        text += body;
        if let Some(mut open) = self.open.take()
            && let Ok(answer) = exchange(&mut open, &text)
        {
            self.open = Some(open);
            return answer;
        }
        let mut open = self.connect().expect("it listens");
        let answer = exchange(&mut open, &text).unwrap_or_else(|e| panic!("{path} is answered: {e}"));
        self.open = Some(open);
        answer
    }

    pub(crate) fn get(&mut self, path: &str, headers: &[(&str, &str)]) -> GatewayResponse {
        self.send("GET", path, headers, "")
    }

    /// The user that the server authenticates, or its response if it authenticates none.
    pub(crate) fn whoami(&mut self, headers: &[(&str, &str)]) -> Result<Who, GatewayResponse> {
        let body = r#"{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}"#;
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let answer = self.send("POST", path, headers, body);
        match answer.code {
            201 => Ok(whoami_of(&answer.json())),
            _ => Err(answer),
        }
    }

    /// As [`Caller::whoami`] with a token.
    pub(crate) fn whoami_with_token(&mut self, token: &str) -> Result<Who, GatewayResponse> {
        self.whoami(&[("Authorization", &format!("Bearer {token}"))])
    }
}

fn line(io: &mut impl Read) -> io::Result<String> {
    let mut line = Vec::new();
    let mut byte = [0u8];
    while !line.ends_with(b"\r\n") {
        io.read_exact(&mut byte)?;
        line.push(byte[0]);
    }
    line.truncate(line.len() - 2);
    String::from_utf8(line).map_err(io::Error::other)
}

/// Reads a head: its first line, and the headers with lower-case names.
pub(crate) fn head(io: &mut impl Read) -> io::Result<(String, Vec<(String, String)>)> {
    let first = line(io)?;
    let mut headers = Vec::new();
    loop {
        let line = line(io)?;
        let Some((name, value)) = line.split_once(':') else {
            return Ok((first, headers));
        };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
}

pub(crate) fn body(io: &mut impl Read, headers: &[(String, String)]) -> io::Result<Vec<u8>> {
    let header = |name: &str| headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
    let mut body = Vec::new();
    if let Some(length) = header("content-length").and_then(|v| v.parse().ok()) {
        body.resize(length, 0);
        io.read_exact(&mut body)?;
    } else if header("transfer-encoding").is_some() {
        loop {
            let size = usize::from_str_radix(&line(io)?, 16).map_err(io::Error::other)?;
            let from = body.len();
            body.resize(from + size, 0);
            io.read_exact(&mut body[from..])?;
            line(io)?;
            if size == 0 {
                break;
            }
        }
    }
    Ok(body)
}

fn exchange(io: &mut Tls, text: &str) -> io::Result<GatewayResponse> {
    io.write_all(text.as_bytes())?;
    io.flush()?;
    let (first, headers) = head(io)?;
    let code = first.split(' ').nth(1).and_then(|c| c.parse().ok());
    let body = body(io, &headers)?;
    Ok(GatewayResponse {
        code: code.ok_or_else(|| io::Error::other(first))?,
        body: String::from_utf8(body).map_err(io::Error::other)?,
    })
}
