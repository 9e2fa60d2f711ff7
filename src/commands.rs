//! The subcommands of the `torana` binary except [`gateway::run`](crate::gateway::run): one entry point for
//! each variant of [`gateway::Command`](crate::gateway::Command).
//!
//! ```no_run
//! use torana::commands;
//! use torana::gateway::{Command, parse};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! match parse(std::env::args_os())? {
//!     Command::Token(command) => println!("{}", commands::token(&command).await?),
//!     Command::Kubeconfig(command) => print!("{}", commands::kubeconfig(&command).await?),
//!     _ => return Err("it prints credentials only".into()),
//! }
//! # Ok(())
//! # }
//! ```

pub use crate::app::credentials::{kubeconfig, token};
pub use crate::app::dev::{Session, run as dev};
pub use crate::app::doctor::{Report, run as doctor};
pub use crate::app::tool::run as store;
pub use crate::cli::store::StoreCommand;
pub use crate::cli::{
    DevCommand, DoctorCommand, ExplainAccess, HealthCommand, KubeconfigCommand, StatusCommand, TokenCommand,
};
