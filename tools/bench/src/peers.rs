//! HAProxy and nginx (Debian's packages) in front of the same backend, configured as a careful operator would:
//! TLS on both sides, HTTP/2 towards the client, keep-alive pools towards the backend.

use crate::process::Server;
use std::path::Path;
use std::process::Command;

pub fn haproxy(dir: &Path, port: u16, backend: u16) -> Result<Option<Server>, String> {
    if !Path::new("/usr/sbin/haproxy").exists() {
        return Ok(None);
    }
    let d = dir.display();
    let pem = [dir.join("backend.crt"), dir.join("backend.key")]
        .iter()
        .map(|p| std::fs::read_to_string(p).map_err(|e| e.to_string()))
        .collect::<Result<Vec<_>, _>>()?
        .concat();
    std::fs::write(dir.join("haproxy.pem"), pem).map_err(|e| e.to_string())?;
    let config = format!(
        "global\n  nbthread 2\n  maxconn 4000\ndefaults\n  mode http\n  timeout connect 5s\n  timeout client 60s\n  timeout server 60s\n  http-reuse always\n\
frontend f\n  bind 127.0.0.1:{port} ssl crt {d}/haproxy.pem alpn h2,http/1.1\n  default_backend b\n\
backend b\n  server s 127.0.0.1:{backend} ssl verify required ca-file {d}/backend.crt sni str(localhost) alpn h2,http/1.1 pool-max-conn 100\n"
    );
    std::fs::write(dir.join("haproxy.cfg"), config).map_err(|e| e.to_string())?;
    let mut c = Command::new("/usr/sbin/haproxy");
    c.arg("-db").arg("-f").arg(dir.join("haproxy.cfg"));
    Server::start(&mut c, &dir.join("haproxy.log")).map(Some)
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
