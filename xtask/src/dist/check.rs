//! Installs each artefact into a folder of its own, with a home of its own, and uses the program in it. What cannot be
//! tried here is reported.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::{
    PACKAGE, Release, SUMS, VERSION, create_folder, digest, image, output_of, read, run, write,
};

/// How long a kernel may take to start.
const KERNEL_TIMEOUT: Duration = Duration::from_secs(30);

/// The folders of one artefact.
struct Place {
    home: PathBuf,
    root: PathBuf,
}

impl Place {
    /// A command without anything of the caller's environment but the path.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("HOME", &self.home)
            .current_dir(&self.root);
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command
    }
}

/// A process that ends with this value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

type Check = fn(&Release, &Place) -> Result<String, String>;

pub(super) fn check(release: &Release) -> Result<(), String> {
    let folder = release.folder.with_file_name("dist-check");
    let _ = fs::remove_dir_all(&folder);
    let checks: [(&str, Check); 7] = [
        ("checksums", check_sums),
        ("install script", check_script),
        ("Debian package", check_debian),
        ("RPM package", check_rpm),
        ("npm packages", check_npm),
        ("image", check_image),
        ("PKGBUILD", check_pkgbuild),
    ];
    for (what, check) in checks {
        let place = Place {
            home: folder.join(what).join("home"),
            root: folder.join(what).join("root"),
        };
        create_folder(&place.home)?;
        create_folder(&place.root)?;
        let result = check(release, &place).map_err(|why| format!("{what}: {why}"))?;
        println!("checked: {what}: {result}");
    }
    fs::remove_dir_all(&folder).map_err(|why| why.to_string())
}

fn check_sums(release: &Release, place: &Place) -> Result<String, String> {
    let mut sums = place.command("sha256sum");
    let checked = output_of(sums.args(["-c", SUMS]).current_dir(&release.folder))?;
    Ok(format!("{} files", checked.lines().count()))
}

/// The version that the program prints, and that its manual page is there.
fn use_program(place: &Place, prefix: &Path) -> Result<(), String> {
    expect_version(&output_of(
        place.command(prefix.join("bin/mgp")).arg("--version"),
    )?)?;
    for file in [
        "share/man/man1/mgp.1",
        "share/man/man1/mgp-servers-add.1",
        "share/doc/mgp/LICENSE-MIT",
    ] {
        if !prefix.join(file).is_file() {
            return Err(format!("there is no {file}"));
        }
    }
    Ok(())
}

fn expect_version(said: &str) -> Result<(), String> {
    if said.contains(VERSION) {
        Ok(())
    } else {
        Err(format!("it is not version {VERSION}: {said}"))
    }
}

fn check_script(release: &Release, place: &Place) -> Result<String, String> {
    let script = release.folder.join("install.sh");
    let from = release.folder.display().to_string();
    let prefix = place.home.join(".local");
    run(place.command("sh").arg(&script).args(["--from", &from]))?;
    use_program(place, &prefix)?;
    let program = prefix.join("bin/mgp");
    configure_free_port(&place.home)?;
    for args in [&["up", "--detach"][..], &["status"], &["down"]] {
        run(place.command(&program).args(args))?;
    }
    run(place.command("sh").arg(&script).arg("--remove"))?;
    if program.exists() || prefix.join("share/man/man1/mgp.1").exists() {
        return Err("--remove leaves something".into());
    }
    // One byte of the archive is another one.
    let copy = place.root.join("copy");
    create_folder(&copy)?;
    let archive = format!("{}.tar.gz", release.name());
    let mut bytes = read(&release.folder.join(&archive))?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    write(&copy.join(&archive), bytes)?;
    write(&copy.join(SUMS), read(&release.folder.join(SUMS))?)?;
    let changed = place
        .command("sh")
        .arg(&script)
        .arg("--from")
        .arg(&copy)
        .output();
    let changed = changed.map_err(|why| why.to_string())?;
    if changed.status.success() || program.exists() {
        return Err("it installs a changed archive".into());
    }
    Ok("installed, a kernel run, removed; a changed archive is refused".into())
}

fn check_debian(release: &Release, place: &Place) -> Result<String, String> {
    let Some(package) = artefact(release, ".deb") else {
        return Ok("not made here".into());
    };
    run(place
        .command("dpkg-deb")
        .arg("--extract")
        .arg(&package)
        .arg(&place.root))?;
    use_program(place, &place.root.join("usr"))?;
    let about = output_of(place.command("dpkg-deb").arg("--info").arg(&package))?;
    if !about.contains(&format!("libc6 (>= {})", release.c_library)) {
        return Err(format!("it does not say which C library it needs: {about}"));
    }
    // An installation with a database of its own; the packages that it depends on are not in it.
    let database = place.root.join("var/lib/dpkg");
    create_folder(&database.join("info"))?;
    create_folder(&database.join("updates"))?;
    write(&database.join("status"), "")?;
    let root = format!("--root={}", place.root.display());
    let dpkg = || {
        let mut dpkg = place.command("dpkg");
        dpkg.args([
            &root,
            "--force-depends",
            "--force-not-root",
            "--log=/dev/null",
        ]);
        dpkg
    };
    run(dpkg().arg("--install").arg(&package))?;
    use_program(place, &place.root.join("usr"))?;
    run(dpkg().args(["--remove", "mgp"]))?;
    if place.root.join("usr/bin/mgp").exists() {
        return Err("it leaves the program".into());
    }
    Ok("installed, used, removed".into())
}

fn check_rpm(release: &Release, place: &Place) -> Result<String, String> {
    let Some(package) = artefact(release, ".rpm") else {
        return Ok("not made here".into());
    };
    let rpm = || {
        let mut rpm = place.command("rpm");
        rpm.arg("--root").arg(&place.root);
        rpm
    };
    run(rpm().arg("--initdb"))?;
    run(rpm().args(["--install", "--nodeps"]).arg(&package))?;
    use_program(place, &place.root.join("usr"))?;
    run(rpm().args(["--erase", "--nodeps", "mgp"]))?;
    if place.root.join("usr/bin/mgp").exists() {
        return Err("it leaves the program".into());
    }
    Ok("installed, used, removed".into())
}

fn check_npm(release: &Release, place: &Place) -> Result<String, String> {
    let mut packages = artefacts(release, ".tgz");
    if packages.is_empty() {
        return Ok("not made here".into());
    }
    // The launcher last: its dependency is there already.
    packages.sort_by_key(|path| path.ends_with(format!("{PACKAGE}-{VERSION}.tgz")));
    write(&place.root.join("package.json"), r#"{"private": true}"#)?;
    let mut npm = place.command("npm");
    npm.args([
        "install",
        "--offline",
        "--no-audit",
        "--no-fund",
        "--silent",
    ]);
    run(npm.args(&packages))?;
    let said = output_of(
        place
            .command("npx")
            .args(["--no", PACKAGE, "--", "--version"]),
    )?;
    expect_version(&said)?;
    let failing = place
        .command("npx")
        .args(["--no", PACKAGE, "--", "no-verb"])
        .output();
    let code = failing.map_err(|why| why.to_string())?.status.code();
    if code != Some(2) {
        return Err(format!("the exit code of the program is lost: {code:?}"));
    }
    Ok("installed and used".into())
}

/// Verifies and unpacks the layer, and runs a kernel in it: in namespaces of its own, as an engine would.
fn check_image(release: &Release, place: &Place) -> Result<String, String> {
    let layout = place.home.join("layout");
    create_folder(&layout)?;
    let archive = release.folder.join(image::name(release));
    run(place
        .command("tar")
        .arg("-xf")
        .arg(archive)
        .arg("-C")
        .arg(&layout))?;
    let blob = |descriptor: &Value| {
        let sum = descriptor["digest"].as_str().unwrap_or_default();
        let sum = sum.trim_start_matches("sha256:");
        let path = layout.join("blobs/sha256").join(sum);
        let bytes = read(&path)?;
        let is_whole = digest::sha256(&bytes) == sum && descriptor["size"] == bytes.len();
        is_whole
            .then_some((path, bytes))
            .ok_or_else(|| format!("{sum} is damaged"))
    };
    let parse = |bytes: &[u8]| -> Result<Value, String> {
        serde_json::from_slice(bytes).map_err(|why| why.to_string())
    };
    let index = parse(&read(&layout.join("index.json"))?)?;
    let manifest = parse(&blob(&index["manifests"][0])?.1)?;
    let config = parse(&blob(&manifest["config"])?.1)?;
    if config["config"]["Entrypoint"][0] != "/usr/bin/mgp" {
        return Err("it starts another program".into());
    }
    let (layer, _) = blob(&manifest["layers"][0])?;
    // Its user is not known here: all is the caller's, who is root in the namespace.
    run(place
        .command("tar")
        .args(["--no-same-owner", "-xzf"])
        .arg(layer)
        .arg("-C")
        .arg(&place.root))?;
    let possible = place
        .command("unshare")
        .args(["--user", "--map-root-user", "true"])
        .output();
    if !possible.is_ok_and(|output| output.status.success()) {
        return Ok("its digests; not run: there are no user namespaces here".into());
    }
    run_image(place)?;
    Ok("its digests; unpacked, a kernel run in it".into())
}

/// Another kernel of this machine may use the usual port.
fn configure_free_port(home: &Path) -> Result<(), String> {
    let folder = home.join(".config/mgp");
    create_folder(&folder)?;
    let config = "[http]\nlisten = \"127.0.0.1:0\"\n";
    write(&folder.join("servers.toml"), config)
}

/// Runs a kernel in the unpacked image, and asks it for its status from outside.
fn run_image(place: &Place) -> Result<(), String> {
    create_folder(&place.root.join("proc"))?;
    create_folder(&place.root.join("dev"))?;
    let in_root = |args: &[&str]| {
        let mut command = place.command("unshare");
        command.args(["--user", "--map-root-user", "--mount", "--pid", "--fork"]);
        command.args(["--kill-child", "--mount-proc=proc", "chroot", "."]);
        command.arg("/usr/bin/mgp").args(args);
        command.env("HOME", "/home/mgp");
        command
    };
    expect_version(&output_of(&mut in_root(&["--version"]))?)?;
    configure_free_port(&place.root.join("home/mgp"))?;
    let data = "home/mgp/.local/share/mgp";
    let mut kernel = in_root(&["up", "--data-dir", &format!("/{data}")]);
    let kernel = kernel.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut kernel = Running(kernel.map_err(|why| why.to_string())?);
    let said = kernel.0.stderr.take().ok_or("its output is not there")?;
    let (up, is_up) = mpsc::channel();
    thread::spawn(move || {
        let mut all = String::new();
        for line in BufReader::new(said).lines().map_while(Result::ok) {
            all += &(line + "\n");
            if all.contains("the kernel is up") {
                break;
            }
        }
        // The receiver may have given up.
        let _ = up.send(all);
    });
    let said = is_up.recv_timeout(KERNEL_TIMEOUT);
    let said = said.map_err(|_| "its kernel does not start".to_owned())?;
    if !said.contains("the kernel is up") {
        return Err(said);
    }
    let socket = place.root.join(data).join("mgp.sock");
    let mut status = place.command(place.root.join("usr/bin/mgp"));
    run(status
        .arg("--socket")
        .arg(&socket)
        .args(["status", "--json"]))
}

/// Runs its function as `makepkg` would, with the archive unpacked.
fn check_pkgbuild(release: &Release, place: &Place) -> Result<String, String> {
    let archive = release.folder.join(format!("{}.tar.gz", release.name()));
    run(place
        .command("tar")
        .arg("-xzf")
        .arg(&archive)
        .arg("-C")
        .arg(&place.root))?;
    let script =
        "set -eu; . \"$1\"; srcdir=$PWD; pkgdir=$PWD/pkg; package; printf %s \"$sha256sums\"";
    let recipe = release.folder.join("PKGBUILD");
    let sum = output_of(
        place
            .command("bash")
            .args(["-c", script, "bash"])
            .arg(recipe),
    )?;
    if sum != digest::sha256(&read(&archive)?) {
        return Err("it has another checksum than the archive".into());
    }
    use_program(place, &place.root.join("pkg/usr"))?;
    Ok("its function run as makepkg does".into())
}

fn artefact(release: &Release, end: &str) -> Option<PathBuf> {
    artefacts(release, end).into_iter().next()
}

/// The artefacts whose names end so.
fn artefacts(release: &Release, end: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(&release.folder)
        .into_iter()
        .flatten()
        .flatten();
    let paths = entries.map(|entry| entry.path());
    paths
        .filter(|path| path.to_string_lossy().ends_with(end))
        .collect()
}
