//! `mgp nodes rekey` and `mgp cluster recover`: replaces the key of a node, or the admin of a cluster.

use std::io::{IsTerminal, Read};

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::kernel::nodes::{Recover, Recovered, Rekey, Rekeyed};

use super::{call, render_confirmations};
use crate::cli::args;
use crate::cli::client::CliContext;
use crate::cli::failure::Failure;
use crate::cli::hidden_input::HiddenInput;
use crate::cli::print::print_line;
use crate::cli::text_format::sanitize_line;

/// Longest recovery key that is read, in bytes: it has about eighty characters.
const RECOVERY_KEY_BYTES_MAX: u64 = 1024;

pub(super) fn rekey_node(context: &CliContext, typed: args::Rekey) -> Result<(), Failure> {
    let params = Rekey {
        node: typed.node,
        to: typed.to,
    };
    let answer = call(context, Rekey::METHOD, &params, "changing the key")?;
    context.print_answer(&answer, |rekeyed: Rekeyed| {
        print_line(render_rekey(&rekeyed))
    })
}

fn render_rekey(rekeyed: &Rekeyed) -> String {
    let Rekeyed {
        name, words, key, ..
    } = rekeyed;
    let [name, words, key] = [name, words, key].map(|text| sanitize_line(text));
    if !rekeyed.restart {
        let confirmations = render_confirmations(&rekeyed.confirmed);
        return format!(
            "{name} goes on under its new key, as {words}{confirmations}\n\
             what was granted to its agents, and what was shared with it alone, ended with the old key: \
             `mgp grants add`, `mgp shares add`"
        );
    }
    let mut text = format!(
        "this node has a new key, and is {words} from its next start on: `mgp down`, then start it as before"
    );
    if rekeyed.cluster.is_some() && rekeyed.signed {
        text += "\nuntil then it has no part in its cluster: the old key has signed the new one, and is out";
    }
    if rekeyed.cluster.is_some() && !rekeyed.signed {
        let location = match rekeyed.admins.as_slice() {
            [] => "an admin of the cluster".to_owned(),
            admins => sanitize_line(&admins.join(" or ")),
        };
        text += &format!(
            "\nthen an admin says that it is the same node, on {location}:\n  mgp nodes rekey {name} --to {key}"
        );
    }
    text
}

pub(super) fn recover_cluster(context: &CliContext, typed: &args::Recover) -> Result<(), Failure> {
    if typed.key != "-" {
        return Err(Failure::Usage(
            "the recovery key is read from the terminal or from stdin, never from the command line, which every \
             user of this machine can read: `mgp cluster recover`. Treat the one that was just typed as known"
                .into(),
        ));
    }
    let params = Recover {
        key: read_recovery_key()?,
        without: typed.without.clone(),
    };
    let answer = call(
        context,
        Recover::METHOD,
        &params,
        "making this node an admin",
    )?;
    context.print_answer(&answer, |recovered: Recovered| {
        let without = if recovered.without.is_empty() {
            String::new()
        } else {
            format!("; {} cut off", recovered.without.join(", "))
        };
        print_line(sanitize_line(&format!(
            "{} is an admin of the cluster {}{without}",
            recovered.name, recovered.cluster
        )))
    })
}

/// Reads the key without echo, or from a pipe.
fn read_recovery_key() -> Result<String, Failure> {
    let stdin = std::io::stdin();
    let text = if stdin.is_terminal() {
        HiddenInput::open()?.read_secret("recovery key (it is not shown): ")?
    } else {
        let mut text = String::new();
        stdin
            .lock()
            .take(RECOVERY_KEY_BYTES_MAX)
            .read_to_string(&mut text)?;
        text
    };
    match text.trim() {
        "" => Err(Failure::Usage(
            "no recovery key was given: it was shown when the cluster was founded".into(),
        )),
        key => Ok(key.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_key_is_printed_with_the_next_step() {
        let mut rekeyed = Rekeyed {
            name: "desk".into(),
            key: "7f".into(),
            restart: true,
            ..Rekeyed::default()
        };
        assert!(
            !render_rekey(&rekeyed).contains("--to"),
            "it is in no cluster"
        );
        rekeyed.cluster = Some("c".into());
        rekeyed.admins = vec!["nas".into()];
        assert!(render_rekey(&rekeyed).contains("on nas:\n  mgp nodes rekey desk --to 7f"));
        rekeyed.signed = true;
        assert!(!render_rekey(&rekeyed).contains("--to"));
        rekeyed.restart = false;
        assert!(render_rekey(&rekeyed).starts_with("desk goes on under its new key"));
    }
}
