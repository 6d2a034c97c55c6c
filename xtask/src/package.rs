//! Release packages: an archive of the program, a Debian package, an image, their bill of materials, and
//! checksums.

mod sbom;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Subcommand;

use crate::{cargo_command, target_folder};

/// The package of the program.
const PACKAGE: &str = "mgp-kernel";
/// The image's name.
const IMAGE: &str = "mgp";

/// The kinds of packages. All are written to the folder `package` of the target folder.
#[derive(Subcommand)]
pub(crate) enum PackageKind {
    /// An archive with the program, its licences, its completions and an example of its configuration.
    Archive {
        /// The build profile.
        #[arg(long, default_value = "dist")]
        profile: String,
    },
    /// A Debian package, by cargo-deb (`cargo install cargo-deb`).
    Deb {
        /// The build profile.
        #[arg(long, default_value = "dist")]
        profile: String,
    },
    /// An image, by docker.
    Image,
    /// The bill of materials in CycloneDX 1.5: `mgp.cdx.json`.
    Sbom,
    /// The SHA-256 of all packages: `SHA256SUMS`, for `sha256sum -c`.
    Checksums,
}

pub(crate) fn package(what: &PackageKind) -> ExitCode {
    let result = match what {
        PackageKind::Archive { profile } => build_archive(profile),
        PackageKind::Deb { profile } => build_deb(profile),
        PackageKind::Image => build_image(),
        PackageKind::Sbom => sbom::write(PACKAGE, &package_folder()),
        PackageKind::Checksums => write_checksums(),
    };
    match result {
        Ok(result) => {
            println!("{result}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            println!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn package_folder() -> PathBuf {
    target_folder().join("package")
}

fn build_archive(profile: &str) -> Result<String, String> {
    run(&mut cargo_command(&[
        "build",
        "-p",
        PACKAGE,
        "--bin",
        "mgp",
        "--locked",
        "--profile",
        profile,
    ]))?;
    let built = match profile {
        "dev" => "debug",
        profile => profile,
    };
    let name = format!(
        "mgp-{}-{}",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH
    );
    let staged = package_folder().join(&name);
    let failed = |why: std::io::Error| format!("{}: {why}", staged.display());
    // Leftovers of an earlier run must not be included.
    let _ = fs::remove_dir_all(&staged);
    fs::create_dir_all(staged.join("completions")).map_err(failed)?;
    let program = target_folder().join(built).join("mgp");
    let own = [
        "LICENSE-APACHE",
        "LICENSE-MIT",
        "README.md",
        "mgp.toml.example",
    ];
    fs::copy(&program, staged.join("mgp")).map_err(failed)?;
    for file in own {
        fs::copy(file, staged.join(file)).map_err(failed)?;
    }
    for (shell, file) in [("bash", "mgp"), ("zsh", "_mgp"), ("fish", "mgp.fish")] {
        let command_output = Command::new(&program).args(["completions", shell]).output();
        let command_output = command_output.map_err(failed)?;
        if !command_output.status.success() {
            return Err(format!("mgp completions {shell} failed"));
        }
        let place = staged.join("completions").join(shell);
        fs::create_dir_all(&place).map_err(failed)?;
        fs::write(place.join(file), command_output.stdout).map_err(failed)?;
    }
    let archive = format!("{name}.tar.gz");
    // With a fixed order, owner and time, so that the archive is reproducible.
    run(Command::new("tar").current_dir(package_folder()).args([
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "--mtime=@0",
        "-czf",
        &archive,
        &name,
    ]))?;
    fs::remove_dir_all(&staged).map_err(failed)?;
    Ok(package_folder().join(archive).display().to_string())
}

fn build_deb(profile: &str) -> Result<String, String> {
    run(&mut cargo_command(&["deb", "--version"])).map_err(|_| {
        "there is no cargo-deb here: `cargo install cargo-deb` brings it".to_owned()
    })?;
    let place = package_folder().join("");
    let mut command = cargo_command(&[
        "deb",
        "-p",
        PACKAGE,
        "--locked",
        "--profile",
        profile,
        "--output",
    ]);
    run(command.arg(&place))?;
    Ok(place.display().to_string())
}

fn build_image() -> Result<String, String> {
    let tag = format!("{IMAGE}:{}", env!("CARGO_PKG_VERSION"));
    let mut docker = Command::new("docker");
    run(docker.args([
        "build",
        "--file",
        "packaging/Dockerfile",
        "--tag",
        &tag,
        ".",
    ]))?;
    Ok(tag)
}

fn write_checksums() -> Result<String, String> {
    let folder = package_folder();
    let failed = |why: std::io::Error| format!("{}: {why}", folder.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type().map_err(failed)?.is_file() && name != "SHA256SUMS" {
            files.push(name);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(format!(
            "{} is empty: package something first",
            folder.display()
        ));
    }
    let mut sums = Command::new("sha256sum");
    let command_output = sums
        .current_dir(&folder)
        .arg("--")
        .args(&files)
        .output()
        .map_err(failed)?;
    if !command_output.status.success() {
        return Err(String::from_utf8_lossy(&command_output.stderr).into_owned());
    }
    fs::write(folder.join("SHA256SUMS"), &command_output.stdout).map_err(failed)?;
    Ok(String::from_utf8_lossy(&command_output.stdout)
        .trim_end()
        .to_owned())
}

/// Runs a command that reports its own errors.
fn run(command: &mut Command) -> Result<(), String> {
    let program = Path::new(command.get_program()).display().to_string();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{program} ended with {status}")),
        Err(why) => Err(format!("{program}: {why}")),
    }
}
