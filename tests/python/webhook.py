"""An admission webhook with the standard library. The path of its URL names how it behaves."""
import base64
import http.server
import json
import os
import ssl
import subprocess
import threading


def certificate(directory):
    """A key and a self-signed certificate for 127.0.0.1."""
    key, cert = os.path.join(directory, "webhook.key"), os.path.join(directory, "webhook.crt")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
         "-subj", "/CN=webhook", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert],
        check=True, capture_output=True)
    return key, cert


def patched(request, operations):
    patch = base64.b64encode(json.dumps(operations).encode()).decode()
    return {"uid": request["uid"], "allowed": True, "patchType": "JSONPatch", "patch": patch}


def sidecar(request):
    """Adds a container, unless it is there already."""
    names = [c["name"] for c in request["object"]["spec"]["containers"]]
    if "sidecar" in names:
        return {"uid": request["uid"], "allowed": True}
    container = {"name": "sidecar", "image": "registry.example.com/sidecar:1"}
    return patched(request, [{"op": "add", "path": "/spec/containers/-", "value": container}])


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        request = json.loads(body)["request"]
        self.server.seen.append(request)
        behaviour = self.path.split("?")[0].strip("/")
        if behaviour == "hang":
            self.server.ended.wait()
            self.close_connection = True
        elif behaviour == "die":
            self.close_connection = True
        elif behaviour == "garbage":
            self.answer(b"{{{ nonsense")
        elif behaviour == "much":
            self.answer(b" " * (8 << 20))
        elif behaviour == "redirect":
            self.answer(b"", 307, {"Location": "/allow"})
        else:
            self.answer(self.review(behaviour, request))

    def review(self, behaviour, request):
        response = {"uid": request["uid"], "allowed": True}
        if behaviour == "sidecar":
            response = sidecar(request)
        elif behaviour == "refuse":
            response = {"uid": request["uid"], "allowed": False, "warnings": ["this will be refused"],
                        "status": {"code": 403, "message": "not on a Friday"}}
        elif behaviour == "uid":
            response = {"uid": "another", "allowed": True}
        elif behaviour == "misplaced":
            response = patched(request, [{"op": "remove", "path": "/spec/none"}])
        return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}).encode()

    def answer(self, body, status=200, headers=None):
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            pass  # a caller that does not want all of it hangs up

    def log_message(self, *args):
        pass


class Webhook(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, directory):
        super().__init__(("127.0.0.1", 0), Handler)
        key, cert = certificate(directory)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        # Handshakes belong to the threads of the connections, not to the loop that accepts.
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        with open(cert, "rb") as f:
            self.bundle = base64.b64encode(f.read()).decode()
        self.seen = []
        self.ended = threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def url(self, behaviour):
        return f"https://127.0.0.1:{self.server_port}/{behaviour}"

    def handle_error(self, request, client_address):
        pass

    def stop(self):
        self.ended.set()
        self.shutdown()
        self.server_close()
