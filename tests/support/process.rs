//! The real binary as a child process.

use super::http::Api;
use super::wait::{Watched, poll};
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// A running `rondo serve`; killed when dropped.
pub struct Rondo {
    child: Child,
    api: Api,
    log: Arc<Watched<String>>,
}

/// A TCP port that was free a moment ago.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").port()
}

/// `rondo` with arguments, in an environment without settings of the caller's.
pub fn command(args: &[&str]) -> Command {
    // Measurements are of an optimised server on a core of its own (scripts/accept.py).
    let binary = std::env::var("RONDO_TEST_BINARY").unwrap_or_else(|_| env!("CARGO_BIN_EXE_rondo").to_owned());
    let mut command = match std::env::var("RONDO_TEST_SERVER_CORE") {
        Ok(core) => {
            let mut pinned = Command::new("taskset");
            pinned.args(["-c", &core, &binary]);
            pinned
        }
        Err(_) => Command::new(binary),
    };
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("RONDO_")) {
        command.env_remove(name);
    }
    // Away from the sources: a developer's own rondo.toml there is none of the tests' business.
    command.args(args).stdin(Stdio::null()).current_dir(std::env::temp_dir());
    command
}

/// Runs `rondo` with arguments to its end.
pub fn run(args: &[&str], env: &[(&str, &str)]) -> Output {
    command(args).envs(env.iter().copied()).output().expect("rondo runs")
}

impl Rondo {
    /// Starts `rondo serve ARGS` on free ports of 127.0.0.1 and waits until it is ready.
    ///
    /// # Panics
    /// With its log, when it is not ready within 15 s.
    pub fn serve(args: &[&str], env: &[(&str, &str)]) -> Self {
        Self::start(args, env, |bind| Api::new(&format!("http://{bind}")))
    }

    /// The same over https; `env` names the files, whose certificate is `trusted`.
    ///
    /// # Panics
    /// As [`Self::serve`].
    pub fn serve_tls(args: &[&str], env: &[(&str, &str)], trusted: &str) -> Self {
        Self::start(args, env, |bind| Api::trusting(&format!("https://{bind}"), trusted))
    }

    fn start(args: &[&str], env: &[(&str, &str)], api: impl FnOnce(&str) -> Api) -> Self {
        let bind = format!("127.0.0.1:{}", free_port());
        let mut child = command(&["serve"])
            .args(args)
            .env("RONDO_HTTP__BIND", &bind)
            .env("RONDO_MEDIA__BIND", "127.0.0.1")
            .env("RONDO_MEDIA__FIRST_PORT", "0")
            .env("RONDO_MEDIA__PIN", "false")
            .envs(env.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("rondo starts");
        let log = Arc::new(Watched::<String>::default());
        keep(child.stdout.take().expect("piped"), &log);
        keep(child.stderr.take().expect("piped"), &log);
        let mut rondo = Self { child, api: api(&bind), log };
        poll("the server is ready", Duration::from_secs(15), || {
            if let Some(status) = rondo.child.try_wait().expect("a child") {
                panic!("rondo ended with {status} before it was ready:\n{}", rondo.log());
            }
            rondo.api.reaches().then_some(())
        });
        rondo
    }

    /// Its HTTP interface.
    pub fn api(&self) -> Api {
        self.api.clone()
    }

    /// What it printed so far.
    pub fn log(&self) -> String {
        self.log.get()
    }

    /// A line of its `/proc/PID/status`, such as `VmRSS` or `VmHWM`, in bytes (proc_pid_status(5)).
    pub fn memory(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("a status");
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let kibibytes = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
        kibibytes.unwrap_or_else(|| panic!("no {name} in {status}")) * 1024
    }

    /// From now on, `VmHWM` is the most memory since now (proc_pid_clear_refs(5)).
    pub fn forget_peak(&self) {
        std::fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5").expect("the peak is forgotten");
    }

    /// SIGTERM.
    pub fn terminate(&self) {
        self.signal("TERM");
    }

    /// SIGHUP.
    pub fn hang_up(&self) {
        self.signal("HUP");
    }

    fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().expect("a shell").success());
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// With its log, when it lives on after `within`.
    pub fn wait_exit(&mut self, within: Duration) -> ExitStatus {
        let log = self.log.clone();
        let what = format!("rondo ends; it printed:\n{}", log.get());
        poll(&what, within, || self.child.try_wait().expect("a child"))
    }
}

impl Drop for Rondo {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- the server's log\n{}", self.log());
        }
    }
}

fn keep(pipe: impl Read + Send + 'static, log: &Arc<Watched<String>>) {
    let log = log.clone();
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            log.update(|text| {
                text.push_str(&line);
                text.push('\n');
            });
        }
    });
}
