"""Recognizes command lines in queries: in `git rebase -i squash` the dash does not exclude anything."""

import re

from sources.text.stopwords import STOPWORDS

# Commands whose names are no ordinary words. Others, such as find, make or python, would turn exclusions into text.
_COMMAND_NAMES = """
    adb ansible-playbook apk apt apt-get awk cd chgrp chmod chown clang cmake cp crontab curl df dig dnf docker-compose
    dpkg du egrep ffmpeg ffprobe fgrep g++ gcc gdb gh git gpg grep gunzip gzip iptables javac journalctl jq kubectl
    latexmk ldapsearch ldd ln ls lsof md5sum mkdir mv mvn mysqldump netstat nmap nohup npm npx nslookup nvcc openssl
    pandoc pdflatex pg_dump pg_restore pgrep pip pip3 pipx pkill pnpm podman ps psql pytest rclone rg rm rmdir rsync scp
    sed sftp sha256sum sqlite3 ssh ssh-keygen strace su sudo systemctl tar tcpdump traceroute tsc uname unzip useradd
    wget xargs yt-dlp yum zcat
"""
# Options that people type without their command, none of them a word that anyone would exclude.
_OPTION_NAMES = """
    al alh aux avz cvf cvzf czf la lah latr lh ltr rf rin rn tulpn tvf vv vvv xf xjf xvf xvzf xzf xzvf zcvf zxf zxvf
"""
_LONG_OPTION = re.compile(r"--[a-z]", re.IGNORECASE)
_COMMANDS = frozenset(_COMMAND_NAMES.split())
_OPTIONS = frozenset(_OPTION_NAMES.split())
_FOLDERS = (".", "..", "/", "~")
_PATH_BEGINNINGS = ("./", "../", "~/", "$(")
_SCRIPT_ENDINGS = (".sh", ".py", ".exe", ".bat", ".ps1")
_PUNCTUATION = ".,;:!?)"


def is_part_of_command(word: str) -> bool:
    """Returns whether a word is the name of a command, the path of a script, a folder as in `find . -name`, or an
    option with two dashes, which never excludes anything."""
    return (
        word in _COMMANDS
        or word in _FOLDERS
        or _LONG_OPTION.match(word) is not None
        or word.startswith(_PATH_BEGINNINGS)
        or word.endswith(_SCRIPT_ENDINGS)
    )


def is_option(word: str) -> bool:
    """Returns whether a word after a dash is an option even without a command before it: a single letter, an option
    with a value, one that is not a word, or one that is too common to be excluded (docker run -it)."""
    word = word.rstrip(_PUNCTUATION)
    return len(word) == 1 or "=" in word or word in _OPTIONS or word in STOPWORDS
