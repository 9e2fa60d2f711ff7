//! Embeds a gateway in a program: options come from command-line flags, and the program adds API groups and
//! [`tower`] layers.
//!
//! ```no_run
//! use torana::gateway::{Command, Gateway, parse};
//!
//! # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
//! let words = ["my-gateway", "serve", "--data-dir=/var/lib/my-gateway"];
//! let Command::Serve(options) = parse(words.map(Into::into))? else {
//!     return Err("it takes the flags of `torana serve`".into());
//! };
//! Gateway::builder(options.complete()?).run().await?;
//! # Ok(())
//! # }
//! ```
//!
//! `examples/embedded-group` adds a group, `examples/tower-layer` adds layers. A program installs a TLS
//! provider of rustls and a subscriber of `tracing` itself, before it starts a gateway. It may call
//! [`shorten_time_slice`] on the threads of its runtime.

pub use crate::app::{Error, Gateway, GatewayBuilder, run, run_with, start, start_with};
pub use crate::cli::{Command, CompletedOptions, Options, UsageError, parse};
pub use crate::request::{Body, Response};
pub use crate::server::GatewayService;
pub use crate::tasks::shorten_time_slice;
