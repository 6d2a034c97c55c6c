//! `cargo xtask dist`: everything of a release, in the folder `dist` of the target folder. Each artefact is made from the
//! same files, and with `--check` installed and used.

mod archive;
mod check;
mod debian;
mod digest;
mod image;
mod npm;
mod provenance;
mod recipes;
mod rpm;
mod sbom;
mod staging;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Args;

use self::staging::Staging;
use crate::{cargo_command, target_folder};

/// Makes an artefact, and says what it is called.
type Make = fn(&Release) -> Result<String, String>;

/// The package of the program.
const PACKAGE: &str = "mgp-kernel";
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The checksums of all other files.
const SUMS: &str = "SHA256SUMS";

/// Options of `cargo xtask dist`.
#[derive(Args)]
pub(crate) struct Options {
    /// The build profile.
    #[arg(long, default_value = "dist")]
    profile: String,
    /// Where the files will be published: for the install script and the recipes. By default the folder itself.
    #[arg(long)]
    url: Option<String>,
    /// Install and use each artefact, in folders of its own, where the tools for that are here.
    #[arg(long)]
    check: bool,
}

/// What all artefacts are made from.
struct Release {
    /// Where they are written.
    folder: PathBuf,
    /// Where they will be published.
    url: String,
    staging: Staging,
    /// `linux`.
    system: &'static str,
    /// `x86_64`, as Rust names it.
    machine: &'static str,
    /// The newest version of the C library that the program needs.
    c_library: String,
    /// Compressing takes longer than building without optimisations.
    is_fast: bool,
}

impl Release {
    /// `mgp-0.1.0-x86_64-linux`.
    fn name(&self) -> String {
        format!("mgp-{VERSION}-{}-{}", self.machine, self.system)
    }

    /// The level of compression.
    fn level(&self) -> &'static str {
        if self.is_fast { "-1" } else { "-9" }
    }
}

pub(crate) fn dist(options: &Options) -> ExitCode {
    let made = make(options).and_then(|release| match options.check {
        true => check::check(&release),
        false => Ok(()),
    });
    match made {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn make(options: &Options) -> Result<Release, String> {
    let program = build_program(&options.profile)?;
    let folder = std::path::absolute(target_folder().join("dist"));
    let folder = folder.map_err(|why| why.to_string())?;
    // Leftovers of an earlier run must not be published.
    let _ = fs::remove_dir_all(&folder);
    create_folder(&folder)?;
    let url = options.url.clone();
    let release = Release {
        url: url.unwrap_or_else(|| format!("file://{}", folder.display())),
        staging: Staging::create(&folder.join("staging"), &program)?,
        c_library: needed_c_library(&program)?,
        folder,
        system: std::env::consts::OS,
        machine: std::env::consts::ARCH,
        is_fast: options.profile == "dev",
    };
    let steps: [(&str, Make); 8] = [
        ("archive", archive::make),
        ("Debian package", debian::make),
        ("RPM package", rpm::make),
        ("npm packages", npm::make),
        ("image", image::make),
        ("recipes", recipes::make),
        ("bill of materials", sbom::make),
        ("provenance", provenance::make),
    ];
    for (what, step) in steps {
        let result = step(&release).map_err(|why| format!("{what}: {why}"))?;
        println!("{what}: {result}");
    }
    fs::remove_dir_all(release.staging.folder()).map_err(|why| why.to_string())?;
    write_checksums(&release.folder)?;
    println!("all of it: {}", release.folder.display());
    Ok(release)
}

fn build_program(profile: &str) -> Result<PathBuf, String> {
    let program = ["build", "-p", PACKAGE, "--bin", "mgp", "--locked"];
    // The tests have built it with the features of all packages: alone, most libraries would be built again.
    let with_tests = ["build", "--workspace", "--bins", "--tests", "--locked"];
    let (args, folder) = match profile {
        "dev" => (&with_tests[..], "debug"),
        profile => (&program[..], profile),
    };
    run(cargo_command(args).args(["--profile", profile]))?;
    Ok(target_folder().join(folder).join("mgp"))
}

/// The newest version of glibc whose symbols the program uses.
fn needed_c_library(program: &Path) -> Result<String, String> {
    let bytes = read(program)?;
    let mut newest = (0, 0);
    for start in memmem(&bytes, b"GLIBC_") {
        let text: String = bytes[start..]
            .iter()
            .take(8)
            .take_while(|byte| byte.is_ascii_digit() || **byte == b'.')
            .map(|byte| char::from(*byte))
            .collect();
        let mut numbers = text.split('.').map(str::parse::<u32>);
        if let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) {
            newest = newest.max((major, minor));
        }
    }
    Ok(format!("{}.{}", newest.0, newest.1))
}

/// The places after each occurrence.
fn memmem<'b>(bytes: &'b [u8], word: &'b [u8]) -> impl Iterator<Item = usize> + 'b {
    let found = bytes.windows(word.len()).enumerate();
    found
        .filter(move |(_, part)| *part == word)
        .map(move |(start, _)| start + word.len())
}

fn write_checksums(folder: &Path) -> Result<(), String> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(|why| why.to_string())? {
        let entry = entry.map_err(|why| why.to_string())?;
        if entry.path().is_file() {
            files.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    files.sort();
    let mut sums = String::new();
    for file in files {
        let sum = digest::sha256(&read(&folder.join(&file))?);
        sums += &format!("{sum}  {file}\n");
    }
    write(&folder.join(SUMS), sums)
}

/// A template of packaging/ with its `{{NAMES}}` filled in.
fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let filled = values
        .iter()
        .fold(template.to_owned(), |text, (name, value)| {
            text.replace(&format!("{{{{{name}}}}}"), value)
        });
    assert!(!filled.contains("{{"), "a value of a template is missing");
    filled
}

fn create_folder(path: &Path) -> Result<(), String> {
    fs::create_dir_all(path).map_err(|why| format!("{}: {why}", path.display()))
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|why| format!("{}: {why}", path.display()))
}

fn write(path: &Path, contents: impl AsRef<[u8]>) -> Result<(), String> {
    fs::write(path, contents).map_err(|why| format!("{}: {why}", path.display()))
}

fn is_installed(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(program).is_file())
}

/// Runs a command; its output is shown if it fails.
fn run(command: &mut Command) -> Result<(), String> {
    output_of(command).map(drop)
}

/// Runs a command for its output.
fn output_of(command: &mut Command) -> Result<String, String> {
    let program = Path::new(command.get_program()).display().to_string();
    let output = command
        .output()
        .map_err(|why| format!("{program}: {why}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.success() {
        true => Ok(said),
        false => Err(format!(
            "{program} ended with {}\n{said}{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_filled_in() {
        assert_eq!(fill("a {{B}} {{C}}", &[("B", "1"), ("C", "2")]), "a 1 2");
    }

    #[test]
    fn the_newest_symbol_decides_about_the_c_library() {
        let file = std::env::temp_dir().join(format!("mgp-symbols-{}", std::process::id()));
        fs::write(&file, b"\0GLIBC_2.9\0GLIBC_2.34\0GLIBC_PRIVATE\0GLIBC_2.17").unwrap();
        let needed = needed_c_library(&file);
        fs::remove_file(&file).unwrap();
        assert_eq!(needed, Ok("2.34".into()));
    }
}
