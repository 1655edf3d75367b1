"""Environment variables that say who runs where: a machine's, a session's, a launcher's, a secret's.

They differ between two machines, and that is no change of a training. A name is left out only if it belongs to one of
these: ``LOCAL_RANK`` is torchrun's, and ``LOCAL_BATCH_SIZE`` is the user's.
"""

import os
import re

BEGINNINGS = (  # that nobody else uses
    *("PERFSUITE_", "PYTEST_", "PYTHON", "LC_", "XDG_", "SSH_", "CONDA_", "_CONDA_", "_CE_", "VSCODE_", "DBUS_"),
    *("SLURM_", "SLURMD_", "SBATCH_", "SRUN_", "PBS_", "LSB_", "OMPI_", "PMI_", "PMIX_", "PRTE_", "I_MPI_", "FLUX_"),
    *("GITHUB_", "KUBERNETES_", "TORCHELASTIC_"),
    # GitLab's: https://docs.gitlab.com/ci/variables/predefined_variables
    *(
        "CI_API_",
        "CI_BUILD_",
        "CI_BUILDS_",
        "CI_COMMIT_",
        "CI_CONCURRENT_",
        "CI_CONFIG_",
        "CI_DEBUG_",
        "CI_DEPENDENCY_",
    ),
    *("CI_DEPLOY_", "CI_ENVIRONMENT_", "CI_EXTERNAL_", "CI_GITLAB_", "CI_JOB_", "CI_MERGE_REQUEST_", "CI_NODE_"),
    *("CI_OPEN_MERGE_", "CI_PAGES_", "CI_PIPELINE_", "CI_PROJECT_", "CI_REGISTRY_", "CI_REPOSITORY_", "CI_RUNNER_"),
    *("CI_SERVER_", "CI_SHARED_", "CI_TEMPLATE_", "CI_TRIGGER_"),
)
NAMES = frozenset(
    [
        *("HOME", "USER", "LOGNAME", "PATH", "PWD", "OLDPWD", "SHELL", "TERM", "COLUMNS", "LINES", "LANG", "LANGUAGE"),
        *("TZ", "TMPDIR", "TMP", "TEMP", "HOSTNAME", "DISPLAY", "VIRTUAL_ENV", "CI", "NO_COLOR", "COLORTERM", "SHLVL"),
        *("_", "MAIL", "EDITOR", "PAGER", "LS_COLORS", "XAUTHORITY", "INVOCATION_ID", "JOURNAL_STREAM", "MANPATH"),
        # launchers
        *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "LOCAL_SIZE", "LOCAL_ADDR", "NODE_RANK", "NNODES"),
        *("GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_NAME", "ROLE_WORLD_SIZE", "CROSS_RANK", "CROSS_SIZE"),
        *("MASTER_ADDR", "MASTER_PORT", "JOB_COMPLETION_INDEX", "CI_REGISTRY", "GITLAB_CI", "TF_BUILD", "JENKINS_URL"),
        *("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"),
        # GitHub's runners
        *("RUNNER_ARCH", "RUNNER_DEBUG", "RUNNER_ENVIRONMENT", "RUNNER_NAME", "RUNNER_OS", "RUNNER_PERFLOG"),
        *("RUNNER_TEMP", "RUNNER_TOOL_CACHE", "RUNNER_TRACKING_ID", "RUNNER_USER", "RUNNER_WORKSPACE"),
    ]
)
# Names that code may ask for itself, and that a machine sets if it does not: they count only if code asks for them.
OF_MACHINES = frozenset(("NAME", "HOST", "HOSTTYPE", "OSTYPE", "MACHTYPE", "UID", "EUID", "PORT", "DEBUG", "VERSION"))
OF_MACHINES |= {"BUILD_ID", "BUILD_NUMBER", "BUILD_TAG", "BUILD_URL", "JOB_NAME", "NODE_NAME", "EMAIL", "ENV", "INFO"}
OF_LOGS = ("_LOG", "_LOGS", "_LOG_LEVEL", "_LOGLEVEL", "_LOG_FILE", "_VERBOSE", "_VERBOSITY", "_WARNINGS")  # endings
SECRETS = ("_SECRET", "_PASSWORD", "_PASSWD", "_PASSPHRASE", "_CREDENTIALS", "_API_KEY", "_ACCESS_KEY", "_PRIVATE_KEY")
LIKE_SECRETS = ("_TOKEN", "_KEY")  # endings of names of secrets, and of settings
SETTING = re.compile(r"|[+-]?[\d.]+(e[+-]?\d+)?|[A-Za-z_]{1,12}")  # a number or a word; a secret is longer


def may_count(name: str, value: str | None, root: str = "") -> bool:
    """Whether the variable may say something of a training. A path's content is in the record of files, so a path
    counts only below the ``root`` of the repository: elsewhere each machine has its own.
    """
    if name in NAMES or name.startswith(BEGINNINGS) or name.endswith((*OF_LOGS, *SECRETS)):
        return False
    if name.endswith(LIKE_SECRETS) and not SETTING.fullmatch(value or ""):
        return False
    return not os.path.isabs(value or "") or is_below(value or "", root)


def is_below(path: str, root: str) -> bool:
    """Whether it is the path of something in that folder."""
    return bool(root) and path.startswith(f"{root}{os.sep}")
