//! `rondo token create`: an access token on standard output, nothing else.

use super::{ConfigArgs, Failure};
use crate::auth::{Auth, Claims, RondoClaim, VideoClaim, unix_s};
use clap::{Args, Subcommand};
use rondo_media::ids::{Identity, RoomName};

#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make an access token.
    Create(Box<CreateArgs>),
}

/// What the token shall allow.
#[derive(Debug, Args)]
pub struct CreateArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Sign with this API key; the first one otherwise.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Room that it may join or administer.
    #[arg(long, value_name = "ROOM")]
    room: Option<String>,
    /// Who it is for.
    #[arg(long, value_name = "NAME")]
    identity: Option<String>,
    /// Name to show.
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// May publish.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    can_publish: bool,
    /// May play.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    can_subscribe: bool,
    /// May publish only these: camera, microphone, screen_share, screen_share_audio.
    #[arg(long, value_name = "SOURCES", value_delimiter = ',',
          value_parser = ["camera", "microphone", "screen_share", "screen_share_audio"])]
    sources: Vec<String>,
    /// May open rooms.
    #[arg(long)]
    room_create: bool,
    /// May list rooms and read sessions.
    #[arg(long)]
    room_list: bool,
    /// May change the room and remove people from it.
    #[arg(long)]
    room_admin: bool,
    /// May administer the whole server.
    #[arg(long)]
    admin: bool,
    /// How long it is valid: 30s, 15m, 6h, 7d.
    #[arg(long, value_name = "TIME", default_value = "6h", value_parser = seconds)]
    ttl: u64,
}

/// Prints the token.
pub fn run(command: TokenCommand) -> Result<(), Failure> {
    let TokenCommand::Create(args) = command;
    // The rules of serving do not matter here: a weak secret is refused when the server starts.
    let config = args.config.sources(Vec::new()).read()?;
    let keys = config.effective_keys();
    if keys.0.is_empty() {
        return Err(Failure::Usage(
            "there is no API key to sign with: set [auth] keys in rondo.toml or RONDO_AUTH__KEYS, or add --dev for a \
             server in development mode"
                .to_owned(),
        ));
    }
    let (key, claims) = (args.key.clone(), claims(&args, unix_s())?);
    let token = Auth::new(keys, config.dev).sign(key.as_deref(), claims).map_err(|_| {
        Failure::Usage(format!("there is no API key {:?} in the configuration", key.unwrap_or_default()))
    })?;
    println!("{token}");
    Ok(())
}

fn claims(args: &CreateArgs, now_s: u64) -> Result<Claims, Failure> {
    if let Some(room) = &args.room {
        room.parse::<RoomName>().map_err(|why| Failure::Usage(format!("--room {room:?} {why}")))?;
    } else if args.room_admin || args.identity.is_some() {
        return Err(Failure::Usage("--room is needed with --identity and --room-admin".to_owned()));
    }
    if let Some(identity) = &args.identity {
        identity.parse::<Identity>().map_err(|why| Failure::Usage(format!("--identity {identity:?} {why}")))?;
    }
    let join = args.room.is_some();
    Ok(Claims {
        sub: args.identity.clone().unwrap_or_default(),
        nbf: Some(now_s),
        exp: now_s.saturating_add(args.ttl),
        name: args.name.clone().unwrap_or_default(),
        video: VideoClaim {
            room_create: args.room_create,
            room_list: args.room_list,
            room_admin: args.room_admin,
            room_join: join,
            room: args.room.clone().unwrap_or_default(),
            can_publish: (join && !args.can_publish).then_some(false),
            can_subscribe: (join && !args.can_subscribe).then_some(false),
            can_publish_sources: args.sources.clone(),
        },
        rondo: RondoClaim { admin: args.admin },
        ..Claims::default()
    })
}

/// `90`, `30s`, `15m`, `6h`, `7d` in seconds.
fn seconds(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is no time; allowed is a number with s, m, h or d, such as 15m");
    let (digits, factor) = match text.chars().last() {
        Some('s') => (text.strip_suffix('s'), 1),
        Some('m') => (text.strip_suffix('m'), 60),
        Some('h') => (text.strip_suffix('h'), 3_600),
        Some('d') => (text.strip_suffix('d'), 86_400),
        _ => (Some(text), 1),
    };
    let n: u64 = digits.and_then(|digits| digits.parse().ok()).ok_or_else(wrong)?;
    n.checked_mul(factor).filter(|s| *s > 0).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        args: CreateArgs,
    }

    fn of(args: &[&str]) -> Result<Claims, String> {
        let args = Only::try_parse_from([&["x"], args].concat()).map_err(|e| e.to_string())?.args;
        claims(&args, 1_000).map_err(|failure| match failure {
            Failure::Usage(text) | Failure::Failed(text) => text,
        })
    }

    #[test]
    fn flags_become_claims() {
        let claims = of(&[
            "--room",
            "r",
            "--identity",
            "ann",
            "--can-publish",
            "false",
            "--sources",
            "camera,screen_share",
            "--ttl",
            "1m",
        ])
        .unwrap();
        assert_eq!((claims.sub.as_str(), claims.exp, claims.nbf), ("ann", 1_060, Some(1_000)));
        assert_eq!((claims.video.can_publish, claims.video.can_subscribe), (Some(false), None));
        assert_eq!(claims.video.can_publish_sources, ["camera", "screen_share"]);
        assert!(claims.video.room_join && !claims.video.room_admin);
        let server = of(&["--room-create", "--room-list", "--admin"]).unwrap();
        assert!(server.video.room_create && server.video.room_list && server.rondo.admin && !server.video.room_join);
    }

    #[test]
    fn mistakes_are_named() {
        assert!(of(&["--identity", "ann"]).unwrap_err().contains("--room is needed"));
        assert!(of(&["--room", "a b"]).unwrap_err().contains("--room \"a b\""));
        assert!(of(&["--room", "r", "--sources", "tv"]).unwrap_err().contains("tv"));
        assert!(of(&["--room", "r", "--ttl", "soon"]).unwrap_err().contains("15m"));
    }

    #[test]
    fn times_have_units() {
        for (text, s) in [("90", 90), ("30s", 30), ("15m", 900), ("6h", 21_600), ("7d", 604_800)] {
            assert_eq!(seconds(text), Ok(s));
        }
        for bad in ["", "h", "-1s", "1.5h", "1w", "0", "99999999999999999999d"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
