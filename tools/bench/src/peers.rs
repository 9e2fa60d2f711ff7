//! HAProxy and nginx (Debian's packages) in front of the same backend, configured as a careful operator
//! would: TLS on both sides, HTTP/2 towards the client, keep-alive pools towards the backend. A second
//! HAProxy also does those parts of an aggregator's work that its configuration language can express.

use crate::process::Server;
use std::path::Path;
use std::process::Command;

/// The second HAProxy's configuration: looks up a token, adds the identity headers for the backend, and the
/// headers of the response. It does no authorization, flow control or retries.
const AGGREGATOR: &str = "  http-request set-var(txn.user) http_auth_bearer,map({d}/tokens.map)
  http-request deny deny_status 401 unless { var(txn.user) -m found }
  http-request del-header authorization
  http-request del-header x-remote-user
  http-request del-header x-remote-uid
  http-request del-header x-remote-group
  http-request del-header x-remote-extra- -m beg
  http-request set-header x-remote-user %[var(txn.user)]
  http-request set-header x-remote-uid bench-uid
  http-request add-header x-remote-group system:masters
  http-request add-header x-remote-group system:authenticated
  option forwardfor
  http-request set-header x-forwarded-host %[req.hdr(host)]
  http-request set-header x-forwarded-proto https
  http-request set-header x-forwarded-uri %[path]
  http-request set-header accept-encoding gzip unless { req.hdr(accept-encoding) -m found }
  unique-id-format %[uuid()]
  unique-id-header audit-id
  http-response set-header audit-id %[unique-id]
  http-response set-header cache-control \"no-cache, private\"
  http-response set-header x-kubernetes-pf-flowschema-uid 7f1f1f0e-52a8-4f0e-9d5c-0d6f9cf1a001
  http-response set-header x-kubernetes-pf-prioritylevel-uid 7f1f1f0e-52a8-4f0e-9d5c-0d6f9cf1a002
";

/// Starts HAProxy; with `token`, the one that does an aggregator's work for requests with that token.
pub fn haproxy(dir: &Path, port: u16, backend: u16, token: Option<&str>) -> Result<Option<Server>, String> {
    if !Path::new("/usr/sbin/haproxy").exists() {
        return Ok(None);
    }
    let d = dir.display();
    let (name, work) = match token {
        None => ("haproxy", String::new()),
        Some(token) => {
            std::fs::write(dir.join("tokens.map"), format!("{token} bench\n")).map_err(|e| e.to_string())?;
            ("haproxy-aggregator", AGGREGATOR.replace("{d}", &d.to_string()))
        }
    };
    let pem = [dir.join("backend.crt"), dir.join("backend.key")]
        .iter()
        .map(|p| std::fs::read_to_string(p).map_err(|e| e.to_string()))
        .collect::<Result<Vec<_>, _>>()?
        .concat();
    std::fs::write(dir.join("haproxy.pem"), pem).map_err(|e| e.to_string())?;
    let config = format!(
        "global\n  nbthread 2\n  maxconn 4000\ndefaults\n  mode http\n  timeout connect 5s\n  timeout client 60s\n  timeout server 60s\n  http-reuse always\n\
frontend f\n  bind 127.0.0.1:{port} ssl crt {d}/haproxy.pem alpn h2,http/1.1\n{work}  default_backend b\n\
backend b\n  server s 127.0.0.1:{backend} ssl verify required ca-file {d}/backend.crt sni str(localhost) alpn h2,http/1.1 pool-max-conn 100\n"
    );
    let file = dir.join(name).with_extension("cfg");
    std::fs::write(&file, config).map_err(|e| e.to_string())?;
    let mut c = Command::new("/usr/sbin/haproxy");
    c.arg("-db").arg("-f").arg(file);
    Server::start(&mut c, &dir.join(name).with_extension("log")).map(Some)
}

/// Starts an HAProxy that only takes TLS from gRPC calls to an etcd without: what any second process costs a call.
pub fn haproxy_before_etcd(dir: &Path, port: u16, etcd: u16) -> Result<Option<Server>, String> {
    if !Path::new("/usr/sbin/haproxy").exists() {
        return Ok(None);
    }
    let pem = dir.join("haproxy-etcd.pem");
    let config = format!(
        "global\n  nbthread 2\ndefaults\n  mode http\n  timeout connect 5s\n  timeout client 60s\n  timeout server 60s\n  http-reuse always\n\
frontend f\n  bind 127.0.0.1:{port} ssl crt {} alpn h2\n  default_backend b\n\
backend b\n  server s 127.0.0.1:{etcd} proto h2\n",
        pem.display()
    );
    let file = dir.join("haproxy-etcd.cfg");
    std::fs::write(&file, config).map_err(|e| e.to_string())?;
    let mut c = Command::new("/usr/sbin/haproxy");
    c.arg("-db").arg("-f").arg(file);
    Server::start(&mut c, &dir.join("haproxy-etcd.log")).map(Some)
}

pub fn nginx(dir: &Path, port: u16, backend: u16) -> Result<Option<Server>, String> {
    if !Path::new("/usr/sbin/nginx").exists() {
        return Ok(None);
    }
    let d = dir.display();
    let config = format!(
        "daemon off;\nworker_processes 2;\npid {d}/nginx.pid;\nerror_log {d}/nginx.err;\nevents {{ worker_connections 4000; }}\n\
http {{\n  access_log off;\n  client_body_temp_path {d}/nb;\n  proxy_temp_path {d}/np;\n  fastcgi_temp_path {d}/nf;\n  uwsgi_temp_path {d}/nu;\n  scgi_temp_path {d}/ns;\n\
  upstream b {{ server 127.0.0.1:{backend}; keepalive 200; }}\n\
  server {{\n    listen 127.0.0.1:{port} ssl http2;\n    keepalive_requests 100000000;\n    ssl_certificate {d}/backend.crt;\n    ssl_certificate_key {d}/backend.key;\n\
    location / {{ proxy_pass https://b; proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_ssl_verify on; proxy_ssl_trusted_certificate {d}/backend.crt; proxy_ssl_name localhost; proxy_ssl_server_name on; proxy_ssl_session_reuse on; }}\n  }}\n}}\n"
    );
    std::fs::write(dir.join("nginx.conf"), config).map_err(|e| e.to_string())?;
    let mut c = Command::new("/usr/sbin/nginx");
    c.arg("-c")
        .arg(dir.join("nginx.conf"))
        .arg("-e")
        .arg(dir.join("nginx.err"));
    Server::start(&mut c, &dir.join("nginx.log")).map(Some)
}
