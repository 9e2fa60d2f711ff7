"""A gateway process in a temporary directory."""
import os
import re
import subprocess
import tempfile
import time


def wait_for(what, ready):
    until = time.monotonic() + 60
    while not ready():
        if time.monotonic() > until:
            raise AssertionError(f"{what} within a minute")
        time.sleep(0.05)


class Gateway:
    """A gateway that listens, and perhaps further processes, until `stop`. It may not be ready yet."""

    def __init__(self, torana, flags=(), tokens=None):
        """Serves with these further flags. `tokens` is the text of a file for `--token-auth-file`."""
        self.dir = tempfile.TemporaryDirectory()
        self.path = self.dir.name
        self.processes = []
        data = os.path.join(self.path, "data")
        self.kubeconfig = os.path.join(data, "admin.kubeconfig")
        command = [torana, "serve", "--secure-port=0", "--bind-address=127.0.0.1", f"--data-dir={data}", *flags]
        if tokens is not None:
            file = os.path.join(self.path, "tokens.csv")
            with open(file, "w") as out:
                out.write(tokens)
            command.append(f"--token-auth-file={file}")
        self.spawn(command, "torana.log")
        try:
            wait_for("the kubeconfig is written", lambda: os.path.exists(self.kubeconfig))
        except AssertionError:
            self.stop()
            raise
        with open(self.kubeconfig) as f:
            self.port = int(re.search(r"server: https://[^\s]*:(\d+)", f.read()).group(1))

    def spawn(self, command, log):
        """Starts a process that `stop` ends, too."""
        with open(os.path.join(self.path, log), "wb") as out:
            self.processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out))

    def stop(self):
        for process in reversed(self.processes):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
        self.dir.cleanup()
