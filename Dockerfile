# Not yet built: written without access to a container engine. `docker build -t lang-envs . && docker run lang-envs`
# trains POAD on Tomato Salad; other commands: `docker run -it lang-envs bash`.
FROM python:3.11-slim
RUN apt-get update && apt-get install -y --no-install-recommends make && rm -rf /var/lib/apt/lists/*
# PyTorch without CUDA; for a GPU leave this line out and start from an image with its driver's libraries.
ENV PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu
RUN useradd --create-home user
USER user
WORKDIR /home/user/lang_envs
COPY --chown=user . .
RUN make .venv/.demo
ENV PATH=/home/user/lang_envs/.venv/bin:$PATH
CMD ["make", "demo"]
