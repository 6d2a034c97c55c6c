//! Queries npm, pnpm, uv or pip for the versions of a package.

use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use mgp_transports::http::proxy::Outbound;

use super::images;
use super::package::{Package, Registry, is_version};
use crate::cli::failure::Failure;
use crate::cli::text_format::first_line;

/// Limit for the answer.
const REGISTRY_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes read of an answer, which is one line.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;
/// Most characters of its error that are shown.
const ERROR_WIDTH_MAX: usize = 300;

/// The newest version of a package, or `requested` if it exists. The program is the one next to the server's own
/// command, if that has a folder, because another npm may be in the path.
pub(super) fn newest_package_version(
    command: &str,
    package: &Package,
    requested: Option<&str>,
    outbound: &Outbound,
) -> Result<String, Failure> {
    let name = package.registry.program();
    if package.registry == Registry::Image {
        let output = images::newest_image_version(
            outbound.clone(),
            &package.name,
            package.version.as_deref(),
            requested,
        );
        return output.map_err(|why| {
            Failure::Other(format!(
                "{}: {}; `--to VERSION` names one yourself",
                package.name,
                first_line(&why, ERROR_WIDTH_MAX)
            ))
        });
    }
    let sibling = Path::new(command).parent().map(|folder| folder.join(name));
    let program = match sibling.filter(|_| command.contains('/')) {
        Some(sibling) if sibling.exists() => sibling,
        Some(_) | None => name.into(),
    };
    let (args, input) = query_command(package, requested);
    let output = run_query(&program, &args, &input).map_err(|why| {
        Failure::Other(format!(
            "{name} could not say which versions of {} there are: {why}; `--to VERSION` names one yourself",
            package.name
        ))
    })?;
    let version = parse_version(package, &output)
        .filter(|found| requested.is_none_or(|requested| requested == found));
    version.ok_or_else(|| {
        Failure::Other(match requested {
            Some(requested) => format!("{name} knows no version {requested} of {}", package.name),
            None => format!("{name} knows no version of {}", package.name),
        })
    })
}

/// The arguments, and the input on stdin.
fn query_command(package: &Package, requested: Option<&str>) -> (Vec<String>, String) {
    let Package { registry, name, .. } = package;
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let exact = |between: &str| requested.map_or(name.clone(), |at| format!("{name}{between}{at}"));
    match registry {
        Registry::Npm | Registry::Pnpm => (words(&["view", &exact("@"), "version"]), String::new()),
        Registry::Uv => {
            let quiet = ["--quiet", "--no-deps", "--no-header", "--no-annotate", "-"];
            let args = [&["pip", "compile"][..], &quiet].concat();
            (words(&args), exact("=="))
        }
        Registry::Pip | Registry::Image => (words(&["index", "versions", name]), String::new()),
    }
}

/// Parses the version: on its own line, after `==`, or in brackets after the name. Among the versions that pip lists,
/// the wanted one counts, too.
fn parse_version(package: &Package, output: &str) -> Option<String> {
    let mut lines = output
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty());
    let version = match package.registry {
        Registry::Npm | Registry::Pnpm => lines.next_back()?,
        Registry::Uv => lines.find_map(|line| line.split_once("=="))?.1,
        Registry::Pip | Registry::Image => {
            lines.find_map(|line| line.split_once(" (")?.1.strip_suffix(')'))?
        }
    };
    is_version(version).then(|| version.to_owned())
}

fn run_query(program: &Path, args: &[String], input: &str) -> Result<String, String> {
    let mut command = Command::new(program);
    let piped = command.args(args).stdin(Stdio::piped());
    let child = piped.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(|why| {
        if why.kind() == io::ErrorKind::NotFound {
            return "it is not installed, or not found here".to_owned();
        }
        why.to_string()
    })?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that ends without reading reports why on stderr.
        let _ = stdin.write_all(input.as_bytes());
    }
    let (output, error_output) = (
        spawn_reader(child.stdout.take()),
        spawn_reader(child.stderr.take()),
    );
    let output = output.recv_timeout(REGISTRY_TIMEOUT);
    let Ok(output) = output else {
        kill(child);
        return Err(format!("no answer in {} s", REGISTRY_TIMEOUT.as_secs()));
    };
    let ended = child.wait().map_err(|why| why.to_string())?;
    if ended.success() {
        Ok(output)
    } else {
        let error_output = error_output
            .recv_timeout(REGISTRY_TIMEOUT)
            .unwrap_or_default();
        let first = error_output.lines().find(|line| !line.trim().is_empty());
        Err(first_line(
            first.unwrap_or("it failed without a word"),
            ERROR_WIDTH_MAX,
        ))
    }
}

/// Reads a pipe to its end in a thread, because it may never end.
fn spawn_reader(pipe: Option<impl Read + Send + 'static>) -> mpsc::Receiver<String> {
    let (whole, received) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe {
            let _ = pipe.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes);
        }
        let _ = whole.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    received
}

fn kill(mut child: Child) {
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str, output: &str) -> Option<String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        parse_version(
            &Package::from_command(&words[0], &words[1..]).unwrap(),
            output,
        )
    }

    #[test]
    fn the_output_of_each_tool_is_parsed() {
        assert_eq!(found("npx db", "1.2.3\n").as_deref(), Some("1.2.3"));
        assert_eq!(found("uvx db", "db==1.2.3\n").as_deref(), Some("1.2.3"));
        let pip = "db (1.2.3)\nAvailable versions: 1.2.3, 1.2.2\n";
        assert_eq!(found("pipx run db", pip).as_deref(), Some("1.2.3"));
        for nonsense in ["", "\n", "not a version at all\n", "--evil\n"] {
            assert_eq!(found("npx db", nonsense), None, "{nonsense}");
        }
    }
}
