//! Every other system: what POSIX and the BSDs share. Processes are read by `ps`, files are polled, and nothing is confined.

use crate::Weakness;

pub mod clock;
pub mod desktop;
pub mod files;
pub(crate) mod handle;
pub mod keyring;
pub mod lock;
pub mod peer;
pub mod pipes;
pub(crate) mod program;
pub(crate) mod sandbox;
pub mod service;
pub(crate) mod signals;
pub(crate) mod table;
pub mod watch;

/// What Linux holds and this system does not, beside the sandbox.
pub const WEAKNESSES: &[Weakness] = &[
    Weakness {
        area: "processes",
        text: "a process that left its server's group, lost its parent and hides its environment outlives its server",
    },
    Weakness {
        area: "environment",
        text: "`mgp doctor` does not compare the kernel's variables with those of its shell",
    },
    Weakness {
        area: "resources",
        text: "the open files of servers are not counted",
    },
    Weakness {
        area: "program",
        text: "after its file was replaced, the guard and launchers run the new program",
    },
    Weakness {
        area: "locks",
        text: "whoever removes kernel.lock can start a second kernel on the same data folder",
    },
    Weakness {
        area: "peers",
        text: "the process at the other end of the socket is not known",
    },
    Weakness {
        area: "connections",
        text: "a machine that vanished is noticed when the system gives up sending",
    },
    Weakness {
        area: "upgrade",
        text: "calls that `mgp stdio` had sent and the kernel had not read are reported as lost",
    },
    Weakness {
        area: "signals",
        text: "the kernel ends when its terminal closes, with nohup, too",
    },
    Weakness {
        area: "files",
        text: "changed files are noticed after up to half a second",
    },
    Weakness {
        area: "desktop",
        text: "its keyring and its notifications are not used",
    },
];
