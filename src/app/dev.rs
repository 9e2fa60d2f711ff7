//! `torana dev`: runs a gateway for one developer. Prints its address and example commands, applies
//! manifests, and at the end removes what it created for the session.

mod apply;
mod kubeconfig;
mod manifests;
mod scratch;

use super::{Error, Gateway, Signals, build, serve_until_signalled};
use crate::cli::{CompletedOptions, DevCommand, Options};
use crate::controllers::loopback::Loopback;
use apply::Applier;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, Stream, StreamExt as _};
use kubeconfig::Merged;
use scratch::Scratch;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Instant;

/// A session, from the command line to the end of the process.
pub struct Session {
    started: Instant,
    apply: Option<PathBuf>,
    merge_kubeconfig: bool,
    scratch: Option<Scratch>,
}

impl Session {
    /// Prepares a session. Returns it with the options of its server.
    ///
    /// # Errors
    /// No directory can be made, or the one with manifests cannot be read.
    pub fn prepare(command: DevCommand) -> Result<(Self, Options), Error> {
        let started = Instant::now();
        let mut options = *command.options;
        if let Some(dir) = &command.apply {
            // At once: a typing error would otherwise look like an empty directory.
            std::fs::read_dir(dir).map_err(Error::unreadable("apply", dir))?;
        }
        let scratch = command
            .ephemeral
            .then(Scratch::create)
            .transpose()
            .map_err(Error::other)?;
        if let Some(scratch) = &scratch {
            options.storage.data_dir = scratch.path().to_owned();
        }
        let session = Self {
            started,
            apply: command.apply,
            merge_kubeconfig: command.merge_kubeconfig,
            scratch,
        };
        Ok((session, options))
    }

    fn greeting(&self, gateway: &Gateway, loops: &[&str], data_dir: &Path) -> String {
        let mut text = String::new();
        let took = self.started.elapsed().as_millis();
        let kubeconfig = gateway.kubeconfig();
        let kubeconfig = std::path::absolute(kubeconfig).unwrap_or_else(|_| kubeconfig.to_owned());
        let _ = writeln!(text, "torana serves {} (started in {took} ms)\n", gateway.url());
        let mut line = |name: &str, value: String| {
            let _ = writeln!(text, "  {name:<11} {value}");
        };
        line("kubeconfig", kubeconfig.display().to_string());
        line(
            "store",
            match self.scratch {
                Some(_) => format!("{} (removed at the end)", data_dir.display()),
                None => data_dir.display().to_string(),
            },
        );
        line(
            "loops",
            if loops.is_empty() {
                "none".to_owned()
            } else {
                loops.join("\n              ")
            },
        );
        if let Some(dir) = &self.apply {
            line(
                "manifests",
                format!("{} (applied now and when they change)", dir.display()),
            );
        }
        let _ = writeln!(text, "\nto try:");
        if !self.merge_kubeconfig {
            let _ = writeln!(text, "  export KUBECONFIG={}", kubeconfig.display());
        }
        text.push_str(
            "  kubectl create namespace demo\n  \
             kubectl create configmap hello -n demo --from-literal=to=world\n  \
             kubectl get all,configmaps,serviceaccounts -n demo\n  \
             kubectl delete namespace demo\n\n\
             Ctrl-C stops the server.\n",
        );
        text
    }
}

/// Runs the session until Ctrl-C.
///
/// # Errors
/// As [`super::run`]; `--merge-kubeconfig` cannot read or write the kubeconfig.
pub fn run(options: CompletedOptions, session: Session) -> BoxFuture<'static, Result<(), Error>> {
    serve(options, session).boxed()
}

async fn serve(options: CompletedOptions, session: Session) -> Result<(), Error> {
    let loops = options.controllers.selection.names().to_vec();
    let data_dir = options.storage.data_dir.clone();
    // Before anything is started: a signal that killed the process would leave the session's directory behind.
    let mut signals = Signals::catch()?;
    let (gateway, is_ending) = start(build(Gateway::builder(options)), &mut signals).await?;
    // Removes its entries when dropped, also if the server fails.
    let _merged = match session.merge_kubeconfig {
        true => Some(Merged::add(gateway.kubeconfig()).map_err(Error::other)?),
        false => None,
    };
    say(&session.greeting(&gateway, &loops, &data_dir));
    // Through the handler in this process, which needs neither a connection nor a credential.
    let administrator = Loopback::administrator(&gateway.handler);
    let ready = gateway.lifecycle.has_been_ready.clone();
    let manifests = session.apply.clone();
    // Pending, not ready, without manifests: its end would end the session.
    let beside = async move {
        match manifests {
            _ if is_ending => {}
            Some(dir) => Applier::new(dir, administrator, ready).run().await,
            None => std::future::pending().await,
        }
    };
    let ended = serve_until_signalled(gateway, signals, beside).await;
    say("\nstopped\n");
    ended
}

/// Awaits a start; returns with its outcome whether a signal came meanwhile. The start continues after the first
/// signal, because what is half started cannot be shut down in order; a second one gives it up.
async fn start<T>(
    starting: impl Future<Output = Result<T, Error>>,
    mut signals: impl Stream<Item = ()> + Unpin,
) -> Result<(T, bool), Error> {
    let mut starting = pin!(starting);
    tokio::select! {
        biased;
        started = &mut starting => return Ok((started?, false)),
        _ = signals.next() => {}
    }
    tokio::select! {
        biased;
        started = starting => Ok((started?, true)),
        _ = signals.next() => Err(Error::SecondSignal),
    }
}

/// Prints to standard output. A closed pipe is not an error.
fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;

    #[tokio::test]
    async fn a_start_survives_one_signal_and_ends_at_the_second() {
        let signals = |n| stream::iter(vec![(); n]).chain(stream::pending());
        let slow = || async {
            tokio::task::yield_now().await;
            Ok(())
        };
        assert!(matches!(start(slow(), signals(0)).await, Ok(((), false))));
        assert!(matches!(start(slow(), signals(1)).await, Ok(((), true))));
        let hung = std::future::pending::<Result<(), Error>>();
        assert!(matches!(start(hung, signals(2)).await, Err(Error::SecondSignal)));
    }
}
