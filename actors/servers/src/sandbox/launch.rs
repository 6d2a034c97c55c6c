//! The launcher of a sandboxed server: this program, started again with a hidden argument. Plain code
//! without a runtime: what one thread gives up, its other threads would keep.
//!
//! Between fork and exec there is no safe code, so each step is a process of its own:
//!
//! ```text
//! leader   stays above the server, which it starts and whose end it tells       leader.rs
//!  ├ init    the first process of the server's own process namespace            init.rs
//!  └ inside  shuts the last doors and becomes the server                        inside.rs
//! ```

use std::env;
use std::ffi::OsString;

use mgp_engine::servers::sandbox::SandboxPolicy;

use super::step::Step;
use super::{POLICY, init, inside, leader};

/// Starts the server in its sandbox: the program's path, its name, its arguments; an empty path starts
/// nothing once all is shut. Answers the code to exit with when the server has ended.
///
/// # Errors
/// In words, why the server was not started.
pub fn launch(command: &[OsString]) -> Result<u8, String> {
    let policy = env::var(POLICY).map_err(|_| "it has no policy".to_owned());
    let policy = policy.and_then(|text| {
        serde_json::from_str::<SandboxPolicy>(&text)
            .map_err(|e| format!("its policy cannot be read: {e}"))
    });
    let done = policy.and_then(|policy| match (Step::of_this_process(), command) {
        (Step::Init, _) => init::run(&policy),
        (Step::Leader, [_, _, ..]) => leader::run(&policy, command),
        (Step::Inside, [program, name, args @ ..]) => {
            Err(inside::become_server(&policy, program, name, args))
        }
        (Step::Leader | Step::Inside, _) => Err("it wants a program and its name".into()),
    });
    done.map_err(|why| format!("the sandbox cannot be closed, so the server is not started: {why}"))
}
