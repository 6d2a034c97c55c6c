//! The main function of the launcher of sandboxed servers: the kernel's program, started with a hidden argument.
//! It has no async runtime, because restrictions of one thread do not apply to others.
//!
//! Between fork and exec no safe code can run, so each step is a separate process:
//!
//! ```text
//! leader   stays above the server, starts it and reports its end                leader.rs
//!  ├ init    the first process of the server's own process namespace            init.rs
//!  └ inside  applies the last restrictions and becomes the server               exec.rs
//! ```

use std::ffi::OsString;

use super::step::Step;
use super::{exec, init, leader};
use crate::launch::read_policy;

/// Starts the server in its sandbox: path of the program, its name, its arguments. With an empty path nothing is
/// started after the restrictions are applied. Returns the exit code of the server.
///
/// # Errors
/// The reason why the server was not started, as text.
pub fn launch(command: &[OsString]) -> Result<u8, String> {
    let done = read_policy().and_then(|policy| match (Step::current(), command) {
        (Step::Init, _) => init::run(&policy),
        (Step::Leader, [_, _, ..]) => leader::run(&policy, command),
        (Step::Inside, [program, name, args @ ..]) => {
            Err(exec::become_server(&policy, program, name, args))
        }
        (Step::Leader | Step::Inside, _) => Err("it requires a program and its name".into()),
    });
    done.map_err(|why| format!("the sandbox cannot be closed, so the server is not started: {why}"))
}
