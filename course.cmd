@echo off
rem The front door on Windows:  course lab | run | test | doctor | ...
rem Finds a Python >= 3.11; install.py makes .venv on first use and hands on to the `lockstep` command in it.
setlocal
set "install=%~dp0lib\lockstep\course\install.py"
set "PYTHONHOME="
set "PYTHONPATH="
set "suits=import sys; sys.exit(sys.version_info < (3, 11))"

if defined LOCKSTEP_PYTHON (
    "%LOCKSTEP_PYTHON%" -c "%suits%" >nul 2>nul && set python="%LOCKSTEP_PYTHON%" && goto found
    echo course: LOCKSTEP_PYTHON is not a Python 3.11 or newer. Unset it, or give the path of one. 1>&2
    exit /b 1
)
for %%p in ("py -3.13" "py -3.12" "py -3.11" "py -3" "python3" "python") do (
    %%~p -c "%suits%" >nul 2>nul && set "python=%%~p" && goto found
)
where uv >nul 2>nul && (
    uv run --quiet --no-project --python ">=3.11,<3.14" "%install%" %*
    goto end
)
echo course: no Python 3.11 or newer was found. Install one from https://www.python.org/downloads/ and try again. 1>&2
exit /b 1

:found
%python% -P "%install%" %*
:end
exit /b %errorlevel%
