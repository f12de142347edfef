//! What `tools/install-c` installs, as programs of others use it: from the compiler, with pkg-config, and with CMake.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// Linked, so that cargo builds the libraries before the test.
use mp_c as _;

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn run(command: &mut Command) -> String {
    for name in libmp::config::VARIABLES {
        command.env_remove(name);
    }
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    out.into_owned()
}

/// Newest `libmp_c….a` beside this test: older builds may have left some.
fn archive() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let files = std::fs::read_dir(test.parent().unwrap()).unwrap();
    let archives = files.map(|file| file.unwrap().path()).filter(|path| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("libmp_c") && name.ends_with(".a")
    });
    let modified = |path: &PathBuf| std::fs::metadata(path).unwrap().modified().unwrap();
    archives.max_by_key(modified).expect("cargo builds it")
}

/// Where what cargo has built for this test is installed, once: as packages are made, with DESTDIR, and then moved.
fn prefix() -> &'static Path {
    static PREFIX: LazyLock<PathBuf> = LazyLock::new(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("package");
        if folder.exists() {
            std::fs::remove_dir_all(&folder).unwrap();
        }
        let mut install = Command::new(here("../../tools/install-c"));
        install.arg("--archive").arg(archive()).arg("/usr");
        run(install.env("DESTDIR", folder.join("staged")));
        std::fs::rename(folder.join("staged/usr"), folder.join("moved")).unwrap();
        folder.join("moved")
    });
    &PREFIX
}

/// The major and minor number, which programs that were linked before depend on.
fn abi() -> String {
    let version = env!("CARGO_PKG_VERSION");
    version.rsplit_once('.').unwrap().0.to_owned()
}

#[test]
fn the_header_has_the_version_of_the_crate() {
    let header = std::fs::read_to_string(here("include/mp.h")).unwrap();
    let part = |name: &str| -> &str {
        let start = format!("#define MP_VERSION_{name} ");
        header.lines().find_map(|line| line.strip_prefix(&start)).unwrap()
    };
    let version = ["MAJOR", "MINOR", "PATCH"].map(part).join(".");
    assert_eq!(version, env!("CARGO_PKG_VERSION"));
}

#[test]
fn the_installed_library_has_a_soname_and_versions_of_its_symbols_and_nothing_else() {
    let library = prefix().join("lib/libmp_c.so");
    let dynamic = run(Command::new("readelf").arg("-d").arg(&library));
    assert!(dynamic.contains(&format!("soname: [libmp_c.so.{}]", abi())), "{dynamic}");
    let symbols = run(Command::new("nm").args(["-D", "--defined-only"]).arg(&library));
    let version = format!("LIBMP_{}", abi());
    let functions = symbols.lines().filter(|line| line.contains(" T ")).count();
    assert!(functions > 80, "{functions}");
    for symbol in symbols.lines().filter_map(|line| line.rsplit(' ').next()) {
        let (name, of) = symbol.split_once("@@").unwrap_or((symbol, ""));
        assert!(name == version || name.starts_with("mp_") && of == version, "{symbol}");
    }

    // A program that the compiler links against it finds it by its SONAME, and every name has its version.
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let mut cc = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()));
    cc.arg(here("tests/programs/ring.c")).arg("-o").arg(&program);
    cc.arg("-I").arg(prefix().join("include")).arg("-L").arg(prefix().join("lib"));
    run(cc.args(["-lmp_c", "-pthread"]));
    let needed = run(Command::new("readelf").arg("-d").arg(&program));
    assert!(needed.contains(&format!("[libmp_c.so.{}]", abi())), "{needed}");
    run(Command::new(&program).arg("2").env("LD_LIBRARY_PATH", prefix().join("lib")));
}

#[test]
fn what_cannot_be_installed_is_refused_with_a_sentence() {
    let prefix = tempfile::tempdir().unwrap();
    for (arguments, sentence) in [
        (
            &["--archive", "/nowhere/libmp_c.a", "x"][..],
            "--archive /nowhere/libmp_c.a: no such file",
        ),
        (&["--archive"], "--archive needs a file"),
        (&["one", "two"], "unknown arguments: one two"),
        (&["--prefix"], "unknown arguments: --prefix"),
    ] {
        let mut command = Command::new(here("../../tools/install-c"));
        let output = command.args(arguments).current_dir(prefix.path()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(sentence), "{arguments:?}: {text}");
    }
    assert_eq!(std::fs::read_dir(prefix.path()).unwrap().count(), 0);
}

#[test]
#[ignore = "needs pkg-config"]
fn a_program_is_built_with_what_pkg_config_says() {
    let ask = |arguments: &[&str]| {
        let mut command = Command::new("pkg-config");
        command.env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig"));
        run(command.args(arguments).arg("libmp"))
    };
    assert_eq!(ask(&["--modversion"]).trim(), env!("CARGO_PKG_VERSION"));
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let mut cc = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()));
    cc.arg(here("tests/programs/ring.c")).arg("-o").arg(&program).arg("-pthread");
    run(cc.args(ask(&["--cflags", "--libs"]).split_whitespace()));
    run(Command::new(&program).arg("2").env("LD_LIBRARY_PATH", prefix().join("lib")));
}

#[test]
#[ignore = "needs cmake"]
fn a_cmake_project_of_c_cpp_and_kernels_finds_the_package() {
    let folder = tempfile::tempdir().unwrap();
    let project = folder.path().join("project");
    std::fs::create_dir(&project).unwrap();
    for file in [
        "package/CMakeLists.txt",
        "package/kernel.cpp",
        "programs/abort.cpp",
        "programs/check.h",
        "programs/ring.c",
    ] {
        let to = project.join(Path::new(file).file_name().unwrap());
        std::fs::copy(here("tests").join(file), to).unwrap();
    }
    let configure = |version: &str| {
        let list = std::fs::read_to_string(here("tests/package/CMakeLists.txt")).unwrap();
        let list = list.replace("find_package(libmp 0.1", &format!("find_package(libmp {version}"));
        std::fs::write(project.join("CMakeLists.txt"), list).unwrap();
        let mut command = Command::new("cmake");
        command.arg("-S").arg(&project).arg("-B").arg(folder.path().join(version));
        command.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix().display()));
        command
    };
    for unfit in ["0.0.9", "0.2", "1.0", "0.1.9"] {
        let output = configure(unfit).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains("compatible"), "{unfit}: {text}");
    }
    run(&mut configure(&abi()));
    let build = folder.path().join(abi());
    run(Command::new("cmake").arg("--build").arg(&build));
    assert_eq!(run(Command::new(build.join("uses_c")).arg("2")).lines().count(), 2);
    assert!(run(&mut Command::new(build.join("uses_cpp"))).starts_with("MP_ERR_ABORTED"));
    assert_eq!(run(&mut Command::new(build.join("uses_kernels"))), "both ranks are right\n");
}

/// The kernel that README shows, as users compile it without a GPU. The host compiler gives none of nvcc's names.
#[test]
fn the_kernel_of_the_readme_compiles() {
    let readme = std::fs::read_to_string(here("../../README.md")).unwrap();
    let kernel = readme.split("```cpp\n").nth(1).and_then(|rest| rest.split("```").next());
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("ring.cpp");
    std::fs::write(&source, kernel.expect("README.md shows a kernel")).unwrap();
    let mut compiler = Command::new(std::env::var("CXX").unwrap_or_else(|_| "c++".into()));
    compiler.args(["-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"]);
    run(compiler.arg(here("../../kernels/include")).arg(source));
}
