/** A first chat to try: an image of 224 by 168 pixels, and a question. */

const IMAGE =
  "iVBORw0KGgoAAAANSUhEUgAAAOAAAACoCAIAAAB2RHW3AAABSUlEQVR42u3SQREAAAQAQdQRSj0x1fDYjXBz2bMBX5UEGBQMikHBoGBQDAoGxaBg" +
  "UDAoBgWDYlAwKBgUg4JBMSgYFAyKQcGgGBQMCgbFoGBQDAoGxaBgUDAoBgWDYlAwKBgUg4JBMSgYFAyKQcGgGBQMCgbFoGBQDAoGBYNiUDAoBgWDg" +
  "kExKBgUg4JBwaAYFAwKBsWgYFAMCgYFg2JQMCgGBYOCQTEoGBQMikHBoBgUDAoGxaBgUAwKBgWDYlAwKAYFg4JBMSgYFAyKQcGgGBQMCgbFoGBQDA" +
  "oGBYNiUDAoBgWDgkExKBgUg4JBwaAYFAwKBsWgYFAMCgYFg2JQMCgGBYOCQTEoGBSDgkHBoBgUDIpBwaBgUAwKBgWDYlAwKAYFg4JBMSgYFIOCQcG" +
  "gGBQMikHBoGBQDAoGxaBgUDAoBgWDgkExKBgUg4JBwaAYFAyKQcGgYFAMCgbFoGBQMCgGBYNiUDAoGBSDgkHBoHx3p9QCglzaOgQAAAAASUVORK5CYII=";

export const EXAMPLE = JSON.stringify(
  {
    model: "model",
    messages: [
      {
        role: "user",
        content: [
          { type: "text", text: "Which colour is this?" },
          { type: "image_url", image_url: { url: `data:image/png;base64,${IMAGE}` } },
        ],
      },
    ],
  },
  null,
  2,
);
