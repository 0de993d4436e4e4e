//! The command line (interfaces §10). Exit codes: 0, 1 failure, 2 usage or configuration.

mod doctor;
mod load;
mod serve;
mod token;

use crate::config::{Config, ConfigError, FlagValue, Sources};
use crate::tls::Files;
use clap::{Args, Parser, Subcommand};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Read without being named, where it exists.
const FILE_BY_DEFAULT: &str = "rondo.toml";

#[derive(Debug, Parser)]
#[command(
    name = "rondo",
    version,
    about = "A real-time media server: calls, conferences, live pushes and voice streams.",
    after_help = "Without a command: `rondo serve --dev`, a server for this machine alone.",
    disable_help_subcommand = true
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server.
    Serve(ServeArgs),
    /// Access tokens.
    Token {
        #[command(subcommand)]
        command: token::TokenCommand,
    },
    /// Read the configuration, say what is wrong with it or what it means.
    CheckConfig(CheckArgs),
    /// Look at this machine: ports, buffers, cores, clock.
    Doctor(ConfigArgs),
    /// Put a server under load, and measure it.
    Load {
        #[command(subcommand)]
        command: load::LoadCommand,
    },
    /// Print the version.
    Version,
}

#[derive(Debug, Args, Default)]
struct ConfigArgs {
    /// Configuration file; ./rondo.toml is read if it is there.
    #[arg(long, value_name = "FILE", env = "RONDO_CONFIG")]
    config: Option<PathBuf>,
    /// Development mode: HTTP on loopback only, and whoever has no token is a guest.
    #[arg(long)]
    dev: bool,
}

#[derive(Debug, Args, Default)]
struct ServeArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Address and port for HTTP, instead of http.bind.
    #[arg(long, value_name = "ADDR:PORT")]
    bind: Option<String>,
    /// Address told to peers for media, instead of media.advertise; may be given more than once.
    #[arg(long, value_name = "ADDR")]
    advertise: Vec<String>,
}

#[derive(Debug, Args)]
struct CheckArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Print a file with every setting, its meaning and its default.
    #[arg(long)]
    print_example: bool,
}

/// Why a command failed; chooses the exit code.
enum Failure {
    /// Usage or configuration: 2.
    Usage(String),
    /// Anything else: 1.
    Failed(String),
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Failure::Usage(error.to_string())
    }
}

impl ConfigArgs {
    fn sources(&self, flags: Vec<FlagValue>) -> Sources {
        let by_default = Path::new(FILE_BY_DEFAULT);
        let file = self.config.clone().or_else(|| by_default.exists().then(|| by_default.to_owned()));
        // Names and values that are not UTF-8 cannot be settings.
        let env = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
        Sources { file, env: env.collect(), flags, dev: self.dev }
    }
}

impl ServeArgs {
    fn load(&self) -> Result<Config, ConfigError> {
        let mut flags = Vec::new();
        if let Some(bind) = &self.bind {
            flags.push(FlagValue { flag: "--bind", section: "http", key: "bind", value: bind.clone() });
        }
        if !self.advertise.is_empty() {
            let value = self.advertise.join(",");
            flags.push(FlagValue { flag: "--advertise", section: "media", key: "advertise", value });
        }
        self.config.sources(flags).load()
    }
}

/// Reads the command line and does what it says.
pub fn run() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| error.exit());
    let command = cli.command.unwrap_or_else(|| {
        let config = ConfigArgs { config: std::env::var_os("RONDO_CONFIG").map(PathBuf::from), dev: true };
        Command::Serve(ServeArgs { config, ..ServeArgs::default() })
    });
    let done = match command {
        Command::Serve(args) => args.load().map_err(Failure::from).and_then(serve::run),
        Command::Token { command } => token::run(command),
        Command::CheckConfig(args) => check_config(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Load { command } => load::run(command),
        Command::Version => {
            println!("rondo {}", env!("CARGO_PKG_VERSION"));
            Ok(())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(text)) => {
            eprintln!("error: {text}");
            ExitCode::from(2)
        }
        Err(Failure::Failed(text)) => {
            eprintln!("error: {text}");
            ExitCode::FAILURE
        }
    }
}

fn check_config(args: &CheckArgs) -> Result<(), Failure> {
    if args.print_example {
        print!("{}", Config::example());
        return Ok(());
    }
    let sources = args.config.sources(Vec::new());
    let config = sources.load()?;
    match &sources.file {
        Some(path) => println!("The configuration in {} and the environment is right.", path.display()),
        None => println!("The configuration is right; there is no file, so it is the defaults and the environment."),
    }
    let told: Vec<String> = config.advertised().iter().map(ToString::to_string).collect();
    println!("  HTTP            {}", config.http_bind());
    if let Some(files) = Files::of(&config.http) {
        let loaded = files.load().map_err(|error| Failure::Usage(error.to_string()))?;
        println!(
            "  TLS             the certificate and its key belong together{}",
            if loaded.expired() { "; IT HAS EXPIRED" } else { "" }
        );
    }
    println!("  media           {} workers from UDP port {}", config.media_workers(), config.media.first_port);
    println!("  told to peers   {}", told.join(", "));
    println!("  API keys        {}", config.effective_keys().0.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_win_and_are_named_in_errors() {
        let parse = |args: &[&str]| match Cli::try_parse_from(args).unwrap().command {
            Some(Command::Serve(args)) => args.load(),
            other => panic!("{other:?}"),
        };
        let config = parse(&[
            "rondo",
            "serve",
            "--dev",
            "--bind",
            "127.0.0.1:0",
            "--advertise",
            "192.0.2.1",
            "--advertise",
            "192.0.2.2",
        ])
        .unwrap();
        assert!(config.dev);
        assert_eq!(config.http_bind(), "127.0.0.1:0".parse().unwrap());
        assert_eq!(config.media.advertise.len(), 2);
        let error = parse(&["rondo", "serve", "--dev", "--advertise", "here"]).unwrap_err().to_string();
        assert!(error.starts_with("flag --advertise: media.advertise = \"here\""), "{error}");
    }

    #[test]
    fn later_work_has_no_command_yet() {
        for word in ["store", "migrate"] {
            assert!(Cli::try_parse_from(["rondo", word]).is_err());
        }
    }
}
